//! The keys of each section: those of this version, and those that later ones will have.
//!
//! A key of a later version is told from a misspelt one, because the correction differs: remove it, or spell it right.

/// The keys that a section has.
pub(super) struct Vocabulary {
    /// The section, in words.
    pub(super) what: &'static str,
    /// What may stand in it.
    pub(super) known: &'static [&'static str],
    /// What will, one day.
    pub(super) later: &'static [&'static str],
}

/// The file as a whole.
pub(super) const ROOT: Vocabulary = Vocabulary {
    what: "a configuration",
    known: &["targets", "workloads", "loads", "budget"],
    later: &["server", "state", "drift", "gpu", "capacity", "pairs", "shard", "log"],
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
    ],
    later: &["engine_metrics", "gpu"],
};

/// `timeouts` of a target.
pub(super) const TIMEOUTS: Vocabulary =
    Vocabulary { what: "timeouts", known: &["connect", "first_token", "idle", "total"], later: &[] };

/// `send` of a target.
pub(super) const SEND: Vocabulary = Vocabulary {
    what: "send",
    known: &["ignore_eos", "min_tokens", "temperature", "include_usage", "continuous_usage_stats", "max_tokens_field"],
    later: &[],
};

/// A header whose value is kept elsewhere.
pub(super) const HEADER: Vocabulary = Vocabulary { what: "a header's table", known: &["env", "file"], later: &[] };

/// `[workloads.NAME]`.
pub(super) const WORKLOAD: Vocabulary = Vocabulary {
    what: "a workload",
    known: &["input_tokens", "output_tokens", "seed"],
    later: &[
        "dataset",
        "path",
        "cache",
        "tokenizer",
        "shared_prefix",
        "repeat",
        "input_spread",
        "output_spread",
        "system_prompt",
        "turns",
    ],
};

/// `[loads.NAME]`.
pub(super) const LOAD: Vocabulary = Vocabulary {
    what: "a load",
    known: &["target", "workload", "rate", "concurrency"],
    later: &[
        "arrival",
        "burstiness",
        "max_in_flight",
        "late_cap",
        "warmup_requests",
        "slo",
        "grace",
        "shard",
        "timeouts",
        "buckets",
    ],
};

/// `[budget]`.
pub(super) const BUDGET: Vocabulary = Vocabulary {
    what: "the budget",
    known: &["output_tokens_per_day"],
    later: &["throttle", "requests_per_day", "input_tokens_per_day", "output_tokens_per_hour", "requests_per_hour"],
};

/// What other load generators call our settings: no slip of the finger, so no likeness of letters finds it.
const OTHER_WORDS: [(&str, &str); 17] = [
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
];

/// Our word for one of another tool, if this section has it.
pub(super) fn other_word<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let (_, ours) = OTHER_WORDS.iter().find(|(other, _)| *other == word)?;
    known.iter().find(|name| *name == ours).copied()
}
