//! What the gateway pretends to be.
//!
//! Plain data with one table, [`KEYS`], that sets, shows and documents each value: a setting that is missing from the
//! table cannot be set, so none stays undocumented.

use std::time::Duration;

use crate::domain::secret::Secret;
use crate::sim::fault::rule::FaultRule;
use crate::sim::model::presets::{self, PRESETS, Preset};
use crate::sim::model::{Params, ParamsError, Workload};
use crate::sim::value::{Value, words};

/// Everything that decides how the gateway answers. `Settings::default()` is a healthy vLLM.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Which engine's own routes and metric names are shown.
    pub server: ServerKind,
    /// The one model that exists.
    pub model: String,
    /// Context length in tokens; a prompt or an answer beyond it is refused.
    pub max_model_len: u32,
    /// The bearer key that is asked for.
    pub api_key: Option<Secret>,
    /// Path under which everything but `/admin` lives, for a client that has to join URLs.
    pub prefix: String,
    /// Also serve the paths without `/v1`, as base URLs ending in `/v1` are joined by some proxies.
    pub sdk_paths: bool,
    /// The engine that decides when tokens exist; `None`: times are drawn from `ttft` and `gap`.
    pub engine: Option<Params>,
    /// What this engine was made from; its parameters may have been changed since.
    pub preset: Option<&'static Preset>,
    /// From the request's last byte to the first token.
    pub ttft: Pace,
    /// Between two token-bearing events.
    pub gap: Pace,
    /// Tokens in one event, as with speculative decoding or a stream interval.
    pub tokens_per_chunk: u32,
    /// Tokens after which the model ends by itself unless `ignore_eos` is on.
    pub natural_tokens: u32,
    /// When token counts are sent.
    pub usage: UsageMode,
    /// Send `"usage": null` where an event has no usage, as OpenAI does; vLLM leaves it out.
    pub usage_null: bool,
    /// Output tokens that are reasoning; they come first.
    pub reasoning_tokens: u32,
    /// Whether the reasoning is streamed.
    pub reasoning: Reasoning,
    /// The field that carries streamed reasoning.
    pub reasoning_field: ReasoningField,
    /// Prompt tokens said to come from the prefix cache.
    pub cached_tokens: u32,
    /// Every Nth token carries no text, which then comes with the next one, as with characters split over tokens.
    pub split_chars: Option<u32>,
    /// Whether a stream begins with the role-only event.
    pub role_chunk: bool,
    /// Whether `ignore_eos` is obeyed.
    pub honour_ignore_eos: bool,
    /// Whether `min_tokens` is obeyed.
    pub honour_min_tokens: bool,
    /// Whether SGLang's events carry only what is new, as with `--stream-output`, instead of all so far.
    pub stream_output: bool,
    /// Whether unknown request fields are refused, and in whose words.
    pub strict_fields: StrictFields,
    /// What the answers are made of.
    pub text: TextKind,
    /// Idle time after which a connection is closed.
    pub keep_alive: Option<Duration>,
    /// Everything random derives from it and from the order of the requests.
    pub seed: u64,
    /// Requests that the truth log keeps.
    pub truth_capacity: u32,
    /// The faults of start-up, with their share and time.
    pub faults: Vec<FaultRule>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            server: ServerKind::Vllm,
            model: "sim-model".to_owned(),
            max_model_len: 32_768,
            api_key: None,
            prefix: String::new(),
            sdk_paths: false,
            engine: None,
            preset: None,
            ttft: Pace::Constant(Duration::from_millis(200)),
            gap: Pace::Constant(Duration::from_millis(20)),
            tokens_per_chunk: 1,
            natural_tokens: 128,
            usage: UsageMode::AsAsked,
            usage_null: false,
            reasoning_tokens: 0,
            reasoning: Reasoning::Hidden,
            reasoning_field: ReasoningField::ReasoningContent,
            cached_tokens: 0,
            split_chars: None,
            role_chunk: true,
            honour_ignore_eos: true,
            honour_min_tokens: true,
            stream_output: false,
            strict_fields: StrictFields::Off,
            text: TextKind::Mixed,
            keep_alive: None,
            seed: 0,
            truth_capacity: 100_000,
            faults: Vec::new(),
        }
    }
}

/// How long something takes: always the same, or drawn anew each time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// Always this long.
    Constant(Duration),
    /// Log-normal with this median; `sigma` is the standard deviation of the logarithm.
    Lognormal {
        /// Half of the draws are shorter.
        median: Duration,
        /// 0 is constant; 0.3 puts the 99th percentile at twice the median.
        sigma: f64,
    },
}

words! {
    /// Which engine is pretended.
    ServerKind {
        /// vLLM.
        Vllm = "vllm",
        /// SGLang.
        Sglang = "sglang",
    }
}

words! {
    /// When an answer says how many tokens it had.
    UsageMode {
        /// As the request's `stream_options` ask.
        AsAsked = "as_asked",
        /// Never.
        None = "none",
        /// In an event of its own at the end, with `choices: []`.
        Final = "final",
        /// In the event that carries `finish_reason`, as transformers does.
        FinalWithChoices = "final_with_choices",
        /// In every event, growing, and once more at the end.
        Continuous = "continuous",
    }
}

words! {
    /// Whether reasoning is streamed or only counted.
    Reasoning {
        /// It takes its time and is in the usage, but no event shows it.
        Hidden = "hidden",
        /// Its tokens are streamed in a field of their own.
        Shown = "shown",
    }
}

words! {
    /// The name of the field with reasoning text.
    ReasoningField {
        /// DeepSeek's, vLLM's until 0.10 and SGLang's.
        ReasoningContent = "reasoning_content",
        /// vLLM's since then, and OpenRouter's.
        Reasoning = "reasoning",
    }
}

words! {
    /// Who refuses unknown request fields.
    StrictFields {
        /// Nobody: they are ignored, as vLLM does.
        Off = "off",
        /// 422, in the words of `transformers serve`.
        Transformers = "transformers",
        /// 400, in OpenAI's words.
        Openai = "openai",
    }
}

words! {
    /// The words of the answers.
    TextKind {
        /// Latin words, Japanese, Cyrillic and emoji.
        Mixed = "mixed",
        /// ASCII only.
        Ascii = "ascii",
    }
}

/// One setting: its key, what it takes and what it does.
pub struct Key {
    /// The name in `key=value`.
    pub name: &'static str,
    /// What may be written.
    pub shape: &'static str,
    /// One line on what it does.
    pub doc: &'static str,
    of: Of,
    set: fn(&mut Settings, &str) -> bool,
    show: fn(&Settings) -> String,
}

/// Whose setting it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Every,
    /// Means nothing to an engine that is modelled.
    Drawn,
    /// Means nothing without one.
    Engine,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Why a setting was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// No setting has this name: choose one of those listed.
    #[error("no setting is called `{key}`; there are {known}")]
    UnknownKey {
        /// What was asked for.
        key: String,
        /// Every name there is.
        known: String,
    },
    /// The setting exists, but takes something else.
    #[error("`{value}` does not fit `{key}`, which takes {shape}")]
    BadValue {
        /// The setting.
        key: &'static str,
        /// What was given.
        value: String,
        /// What it takes.
        shape: &'static str,
    },
    /// The setting is one of an engine, and none is modelled.
    #[error("`{key}` is a part of a modelled engine: choose one with --preset {presets}")]
    NeedsEngine {
        /// The setting.
        key: &'static str,
        /// The presets with an engine.
        presets: String,
    },
    /// The setting is one of drawn times, and an engine is modelled.
    #[error("`{key}` has no effect here: the engine of the preset computes its times; --preset none lets you set them")]
    NeedsNoEngine {
        /// The setting.
        key: &'static str,
    },
    /// No preset has this name: choose one of those listed.
    #[error("no preset is called `{name}`; there are {known}")]
    UnknownPreset {
        /// What was asked for.
        name: String,
        /// Every name there is.
        known: String,
    },
    /// Each value can be, but not together.
    #[error(transparent)]
    NoEngine(#[from] ParamsError),
}

macro_rules! key {
    ($of:ident, $type:ty, $doc:literal, $name:ident, $settings:ident, $place:expr, $place_mut:expr $(, $check:expr)?) => {
        Key {
            name: stringify!($name),
            shape: <$type as Value>::SHAPE,
            doc: $doc,
            of: Of::$of,
            set: |$settings, text| match (<$type>::read(text), $place_mut) {
                (Some(value), Some(place)) => {
                    $(if !$check(&value) { return false; })?
                    *place = value;
                    true
                }
                _ => false,
            },
            show: |$settings| $place.map_or_else(String::new, Value::show),
        }
    };
}

macro_rules! keys {
    (
        $($field:ident : $type:ty = $doc:literal $(if $check:expr)?),* $(,)?;
        drawn: $($drawn:ident : $drawn_type:ty = $drawn_doc:literal),* $(,)?;
        engine: $($part:ident : $part_type:ty = $part_doc:literal $(if $part_check:expr)?),* $(,)?
    ) => {
        /// Every setting, in the order in which they are explained.
        pub const KEYS: &[Key] = &[
            $(key!(Every, $type, $doc, $field, settings, Some(&settings.$field), Some(&mut settings.$field) $(, $check)?),)*
            $(key!(Drawn, $drawn_type, $drawn_doc, $drawn, settings, Some(&settings.$drawn), Some(&mut settings.$drawn)),)*
            $(key!(
                Engine, $part_type, $part_doc, $part, settings,
                settings.engine.as_ref().map(|engine| &engine.$part),
                settings.engine.as_mut().map(|engine| &mut engine.$part)
                $(, $part_check)?
            ),)*
        ];
    };
}

keys! {
    server: ServerKind = "which engine's own routes and metric names are shown",
    model: String = "name of the one model that exists" if |name: &String| !name.is_empty(),
    max_model_len: u32 = "context length in tokens" if is_positive,
    api_key: Option<Secret> = "bearer key that requests must carry, or none",
    prefix: String = "path under which everything but /admin lives, such as /api" if |prefix: &String| is_prefix(prefix),
    sdk_paths: bool = "serve /chat/completions, /completions and /models too, without /v1",
    tokens_per_chunk: u32 = "tokens in one event" if is_positive,
    natural_tokens: u32 = "tokens after which the model stops by itself, unless ignore_eos" if is_positive,
    usage: UsageMode = "when token counts are sent",
    usage_null: bool = "send \"usage\": null in events without usage",
    reasoning_tokens: u32 = "output tokens that are reasoning, which come first",
    reasoning: Reasoning = "whether reasoning is streamed or only counted",
    reasoning_field: ReasoningField = "the field that carries streamed reasoning",
    split_chars: Option<u32> = "every Nth token has empty text, which comes with the next one; or none" if is_none_or_positive,
    role_chunk: bool = "begin a chat stream with the role-only event",
    honour_ignore_eos: bool = "obey ignore_eos",
    honour_min_tokens: bool = "obey min_tokens",
    stream_output: bool = "/generate sends only what is new in each event instead of all so far",
    strict_fields: StrictFields = "refuse unknown request fields, in whose words",
    text: TextKind = "what answers are made of: mixed has multi-byte characters",
    keep_alive: Option<Duration> = "idle time after which a connection is closed, or none",
    seed: u64 = "everything random derives from it",
    truth_capacity: u32 = "requests that the truth log keeps" if is_positive;
    drawn:
    ttft: Pace = "from the request's last byte to the first token",
    gap: Pace = "between two events with tokens",
    cached_tokens: u32 = "prompt tokens said to come from the prefix cache";
    engine:
    max_running_requests: u32 = "requests in the batch" if is_positive,
    max_prefill_tokens: u32 = "prompt tokens in one step" if is_positive,
    prefill_rate: f64 = "prompt tokens per second",
    step: Duration = "a step of an empty batch",
    step_per_request: Duration = "what each decoding request adds to a step",
    step_per_kv_token: Duration = "what each token of a decoding request's context adds to a step",
    kv_tokens: u32 = "tokens for which the KV cache has room" if is_positive,
    prefix_cache: bool = "find blocks of prompts again",
    request_overhead: Duration = "from a request's last byte to its place in the queue",
    jitter: f64 = "spread of a step's time, as the standard deviation of its logarithm" if |jitter: &f64| *jitter <= 3.0,
    swing: f64 = "part by which steps slowly become longer and shorter" if |swing: &f64| *swing <= 0.9,
    swing_period: Duration = "how long one such turn takes",
}

fn is_positive(number: &u32) -> bool {
    *number > 0
}

fn is_none_or_positive(number: &Option<u32>) -> bool {
    *number != Some(0)
}

/// Either empty or `/segment/…` without the characters that mean something in a route.
fn is_prefix(prefix: &str) -> bool {
    let inner = prefix.strip_prefix('/').unwrap_or_default();
    prefix.is_empty()
        || inner
            .split('/')
            .all(|part| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.~".contains(c)))
}

impl Settings {
    /// Sets one value from text, as `--set key=value` gives it.
    ///
    /// # Errors
    /// When no setting has this name, or when it takes something else.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingError> {
        let Some(known) = KEYS.iter().find(|known| known.name == key) else {
            let known: Vec<_> = KEYS.iter().map(|known| known.name).collect();
            return Err(SettingError::UnknownKey { key: key.to_owned(), known: known.join(", ") });
        };
        match (known.of, &self.engine) {
            (Of::Engine, None) => {
                return Err(SettingError::NeedsEngine { key: known.name, presets: engines(" or --preset ") });
            }
            (Of::Drawn, Some(_)) => return Err(SettingError::NeedsNoEngine { key: known.name }),
            (Of::Every | Of::Drawn | Of::Engine, _) => {}
        }
        if (known.set)(self, value) {
            Ok(())
        } else {
            Err(SettingError::BadValue { key: known.name, value: value.to_owned(), shape: known.shape })
        }
    }

    /// Takes over the engine of a preset, and what it serves.
    ///
    /// # Errors
    /// When no preset has this name.
    pub fn use_preset(&mut self, name: &str) -> Result<(), SettingError> {
        let Some(preset) = presets::find(name) else {
            return Err(SettingError::UnknownPreset { name: name.to_owned(), known: engines(", ") });
        };
        (self.engine, self.preset) = (Some(preset.params), Some(preset));
        preset.model.clone_into(&mut self.model);
        self.max_model_len = preset.max_model_len;
        Ok(())
    }

    /// Whether all values can be together. Each is fine by itself.
    ///
    /// # Errors
    /// When there can be no such engine.
    pub fn check(&self) -> Result<(), SettingError> {
        self.engine.map_or(Ok(()), |engine| engine.check(self.max_model_len)).map_err(SettingError::NoEngine)
    }

    /// What the engine resembles and where its knee is; then one line a setting that means something here, `key = value  (what it
    /// takes) what it does`. For people.
    #[must_use]
    pub fn describe(&self) -> String {
        let without = if self.engine.is_some() { Of::Drawn } else { Of::Engine };
        let line = |key: &Key| format!("{} = {}  ({}) {}\n", key.name, (key.show)(self), key.shape, key.doc);
        let settings = KEYS.iter().filter(|key| key.of != without).map(line);
        self.engine.map(|engine| self.describe_engine(&engine)).into_iter().chain(settings).collect()
    }

    fn describe_engine(&self, engine: &Params) -> String {
        let mut text = String::new();
        if let Some(preset) = self.preset {
            let changed = if preset.params == *engine { "" } else { ", with parameters of its own" };
            text = format!("it pretends to be {}{changed}\nafter {}\n", preset.resembles, preset.source);
        }
        let chat = Workload { prompt_tokens: 256, cached_tokens: 0, output_tokens: 100 };
        let most = engine.most_throughput(chat);
        text.push_str(&format!(
            "requests of 256 prompt and 100 output tokens: at most {most:.1} per second ({:.0} output tokens per second), and \
             95 % of that with {} under way: its knee\n",
            most * f64::from(chat.output_tokens),
            engine.knee(chat)
        ));
        text
    }
}

/// The names of the presets.
fn engines(between: &str) -> String {
    PRESETS.map(|preset| preset.name).join(between)
}

/// Every setting with its default, those of a modelled engine with the values of the first preset, for people.
#[must_use]
pub fn list() -> String {
    let (drawn, mut modelled) = (Settings::default(), Settings::default());
    modelled.engine = PRESETS.first().map(|preset| preset.params);
    let lines = |settings: &Settings, of: Of| -> String {
        let line = |key: &Key| format!("{} = {}  ({}) {}\n", key.name, (key.show)(settings), key.shape, key.doc);
        KEYS.iter().filter(|key| key.of == of).map(line).collect()
    };
    let presets: String = PRESETS.iter().map(|preset| format!("{}: {}\n", preset.name, preset.resembles)).collect();
    format!(
        "settings (--set KEY=VALUE):\n{}\nwithout a preset, times are drawn:\n{}\npresets (--preset NAME):\n{presets}\n\
         parts of a preset's engine, with the values of {}:\n{}",
        lines(&drawn, Of::Every),
        lines(&drawn, Of::Drawn),
        PRESETS.first().map_or("none", |preset| preset.name),
        lines(&modelled, Of::Engine),
    )
}

impl Value for Pace {
    const SHAPE: &'static str = "a time such as 20ms, or lognormal:MEDIAN,SIGMA";

    fn read(text: &str) -> Option<Self> {
        let Some(shape) = text.strip_prefix("lognormal:") else {
            return Duration::read(text).map(Self::Constant);
        };
        let (median, sigma) = shape.split_once(',')?;
        // Beyond 3 one draw in a hundred is a thousand medians: a typing error, not a gateway.
        let sigma = f64::read(sigma.trim()).filter(|sigma| *sigma <= 3.0)?;
        Some(Self::Lognormal { median: Duration::read(median.trim())?, sigma })
    }

    fn show(&self) -> String {
        match self {
            Self::Constant(time) => time.show(),
            Self::Lognormal { median, sigma } => format!("lognormal:{},{sigma}", median.show()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_takes_what_it_shows() {
        for (mut settings, foreign) in [(Settings::default(), Of::Engine), (modelled(), Of::Drawn)] {
            for key in KEYS.iter().filter(|key| key.name != "api_key" && key.of != foreign) {
                let shown = (key.show)(&settings);
                assert_eq!(settings.set(key.name, &shown), Ok(()), "{}={shown}", key.name);
                assert_eq!((key.show)(&settings), shown);
                assert!(settings.describe().contains(&format!("{} = {shown}  (", key.name)));
            }
        }
    }

    fn modelled() -> Settings {
        let mut settings = Settings::default();
        settings.use_preset("7b-rtx4090").unwrap();
        settings
    }

    #[test]
    fn a_setting_without_effect_is_refused_and_not_shown() {
        let error = Settings::default().set("kv_tokens", "100000").unwrap_err().to_string();
        assert!(error.contains("choose one with --preset 7b-rtx4090"), "{error}");
        let error = modelled().set("ttft", "1s").unwrap_err().to_string();
        assert!(error.starts_with("`ttft` has no effect here") && error.contains("--preset none"), "{error}");
        assert!(!Settings::default().describe().contains("kv_tokens") && !modelled().describe().contains("gap ="));
    }

    #[test]
    fn a_preset_is_explained_with_its_source_and_its_knee() {
        let text = modelled().describe();
        for part in ["one RTX 4090", "https://", "at most 9.8 per second", "with 30 under way: its knee"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let mut settings = modelled();
        settings.set("max_running_requests", "8").unwrap();
        assert!(settings.describe().contains("with parameters of its own"));
        settings.set("kv_tokens", "1000").unwrap();
        assert!(settings.check().unwrap_err().to_string().contains("no room for one request"));
        let error = Settings::default().use_preset("70b").unwrap_err().to_string();
        assert_eq!(error, "no preset is called `70b`; there are 7b-rtx4090, 35b-a3b-2xrtx3090");
    }

    #[test]
    fn the_list_has_every_setting_and_preset() {
        let list = list();
        assert!(KEYS.iter().all(|key| list.contains(&format!("{} = ", key.name))));
        assert!(PRESETS.iter().all(|preset| list.contains(preset.name)));
    }

    #[test]
    fn an_unknown_setting_is_refused_with_the_list_of_known_ones() {
        let error = Settings::default().set("tftt", "1s").unwrap_err().to_string();
        assert!(
            error.starts_with("no setting is called `tftt`; there are server, model, ") && error.contains(", ttft, "),
            "{error}"
        );
    }

    #[test]
    fn values_that_make_no_sense_are_refused() {
        for (key, value) in [
            ("ttft", "fast"),
            ("gap", "lognormal:20ms"),
            ("gap", "lognormal:20ms,9"),
            ("tokens_per_chunk", "0"),
            ("split_chars", "0"),
            ("prefix", "api"),
            ("prefix", "/api/"),
            ("prefix", "/{x}"),
            ("usage", "sometimes"),
            ("model", ""),
            ("sdk_paths", "yes"),
        ] {
            let error = Settings::default().set(key, value).unwrap_err();
            assert!(matches!(error, SettingError::BadValue { .. }), "{key}={value}");
        }
    }

    #[test]
    fn a_key_never_shows() {
        let mut settings = Settings::default();
        settings.set("api_key", "sk-hidden").unwrap();
        assert!(settings.describe().contains("api_key = [set]"));
        assert!(!format!("{settings:?}").contains("sk-hidden"));
    }
}
