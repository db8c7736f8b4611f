//! The keys of each section: those of this version, those that later ones will have, and those of other sections.
//!
//! The three are told apart, because the correction differs: spell it right, remove it, or write it elsewhere.

/// The keys that a section has.
pub(super) struct Vocabulary {
    /// The section, in words.
    pub(super) what: &'static str,
    /// What may stand in it.
    pub(super) known: &'static [&'static str],
    /// What will, one day.
    pub(super) later: &'static [&'static str],
    /// What stands in another section, and in which.
    pub(super) elsewhere: &'static [(&'static str, &'static str)],
}

/// The file as a whole.
pub(super) const ROOT: Vocabulary = Vocabulary {
    what: "a configuration",
    known: &["targets", "workloads", "loads", "budget", "server", "state", "log", "shard"],
    later: &["drift", "gpu", "capacity", "pairs"],
    elsewhere: &[],
};

/// `[targets.NAME]`.
pub(super) const TARGET: Vocabulary = Vocabulary {
    what: "a target",
    known: &[
        "base_url",
        "endpoint",
        "api_key_env",
        "api_key_file",
        "model",
        "api",
        "timeouts",
        "headers",
        "body",
        "send",
        "ca_file",
        "budget",
    ],
    later: &["engine_metrics", "gpu"],
    elsewhere: &[],
};

/// `timeouts` of a target.
pub(super) const TIMEOUTS: Vocabulary =
    Vocabulary { what: "timeouts", known: &["connect", "first_token", "idle", "total"], later: &[], elsewhere: &[] };

/// `send` of a target.
pub(super) const SEND: Vocabulary = Vocabulary {
    what: "send",
    known: &["ignore_eos", "min_tokens", "temperature", "include_usage", "continuous_usage_stats", "max_tokens_field"],
    later: &[],
    elsewhere: &[],
};

/// A header whose value is kept elsewhere.
pub(super) const HEADER: Vocabulary =
    Vocabulary { what: "a header's table", known: &["env", "file"], later: &[], elsewhere: &[] };

/// `[workloads.NAME]`.
pub(super) const WORKLOAD: Vocabulary = Vocabulary {
    what: "a workload",
    known: &[
        "dataset",
        "path",
        "broken_lines",
        "input_tokens",
        "output_tokens",
        "seed",
        "cache",
        "groups",
        "prefix_tokens",
        "turns",
        "tokenizer",
    ],
    later: &[],
    elsewhere: &[
        ("shared_prefix", "it is cache = { shared_prefix = N }"),
        ("repeat", "it is cache = \"repeat\""),
        ("system_prompt", "it is prefix_tokens of dataset = \"shared-prefix\""),
    ],
};

/// A length that is drawn.
pub(super) const LENGTH: Vocabulary =
    Vocabulary { what: "a length", known: &["uniform", "normal", "log_normal", "mixture"], later: &[], elsewhere: &[] };

/// A part of a mixture.
pub(super) const SHARE: Vocabulary = Vocabulary {
    what: "a part of a mixture",
    known: &["weight", "tokens", "uniform", "normal", "log_normal"],
    later: &[],
    elsewhere: &[],
};

/// `normal` of a length.
pub(super) const NORMAL: Vocabulary =
    Vocabulary { what: "normal", known: &["mean", "sd", "min", "max"], later: &[], elsewhere: &[] };

/// `log_normal` of a length.
pub(super) const LOG_NORMAL: Vocabulary =
    Vocabulary { what: "log_normal", known: &["median", "sigma", "min", "max"], later: &[], elsewhere: &[] };

/// `cache` of a workload.
pub(super) const CACHE: Vocabulary =
    Vocabulary { what: "the cache", known: &["shared_prefix"], later: &[], elsewhere: &[] };

/// `[loads.NAME]`.
pub(super) const LOAD: Vocabulary = Vocabulary {
    what: "a load",
    known: &[
        "target",
        "workload",
        "rate",
        "arrival",
        "burstiness",
        "max_in_flight",
        "late_cap",
        "concurrency",
        "warmup_requests",
        "slo",
        "grace",
    ],
    later: &[],
    elsewhere: &[
        ("buckets", "it is server.buckets, the same for every load"),
        (
            "shard",
            "it is shard.index and shard.count, outside of any section: a daemon is the same shard of every load",
        ),
        ("timeouts", "it is the timeouts of the target"),
    ],
};

/// `slo` of a load.
pub(super) const SLO: Vocabulary =
    Vocabulary { what: "slo", known: &["ttft", "tpot", "e2el"], later: &[], elsewhere: &[] };

/// `[budget]`, and `budget` of a target.
pub(super) const BUDGET: Vocabulary = Vocabulary {
    what: "the budget",
    known: &[
        "requests_per_hour",
        "requests_per_day",
        "input_tokens_per_hour",
        "input_tokens_per_day",
        "output_tokens_per_hour",
        "output_tokens_per_day",
    ],
    later: &["throttle"],
    elsewhere: &[],
};

/// `[server]`.
pub(super) const SERVER: Vocabulary = Vocabulary {
    what: "the server",
    known: &["listen", "admin_token_env", "admin_token_file", "buckets"],
    later: &["web_config"],
    elsewhere: &[],
};

/// `[state]`.
pub(super) const STATE: Vocabulary = Vocabulary { what: "the state", known: &["dir"], later: &[], elsewhere: &[] };

/// `[log]`.
pub(super) const LOG: Vocabulary =
    Vocabulary { what: "the log", known: &["level", "format"], later: &[], elsewhere: &[] };

/// `shard`.
pub(super) const SHARD: Vocabulary =
    Vocabulary { what: "the shard", known: &["index", "count"], later: &[], elsewhere: &[] };

/// What other load generators call our settings: no slip of the finger, so no likeness of letters finds it.
const OTHER_WORDS: [(&str, &str); 25] = [
    ("url", "base_url"),
    ("host", "base_url"),
    ("address", "base_url"),
    ("api_base", "base_url"),
    ("path", "endpoint"),
    ("model_name", "model"),
    ("qps", "rate"),
    ("rps", "rate"),
    ("request_rate", "rate"),
    ("requests_per_second", "rate"),
    ("workers", "concurrency"),
    ("users", "concurrency"),
    ("max_concurrency", "concurrency"),
    ("max_tokens", "output_tokens"),
    ("input_len", "input_tokens"),
    ("output_len", "output_tokens"),
    ("timeout", "timeouts"),
    ("address", "listen"),
    ("bind", "listen"),
    ("port", "listen"),
    ("path", "dir"),
    ("warmup", "warmup_requests"),
    ("num_warmups", "warmup_requests"),
    ("distribution", "arrival"),
    ("goodput", "slo"),
];

/// Our word for one of another tool, if this section has it.
pub(super) fn other_word<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let mut ours = OTHER_WORDS.iter().filter(|(other, _)| *other == word).map(|(_, ours)| ours);
    ours.find_map(|ours| known.iter().find(|name| *name == ours).copied())
}
