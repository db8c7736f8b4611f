//! The URLs of a target.
//!
//! `base_url` is joined with the endpoint and keeps its path prefix: `…/api` gives `…/api/v1/chat/completions`. A
//! `base_url` that ends in `/v1` does not get it twice, because half of all documentation writes it there.

use url::Url;

use crate::config::sections::Target;
use crate::domain::api::Api;

/// What the Python SDK appends to its base URL: the endpoint without `/v1`.
const VERSION_PREFIX: &str = "/v1";

impl Target {
    /// The URL that every request is posted to.
    #[must_use]
    pub fn request_url(&self) -> Url {
        join(&self.base_url, self.endpoint.as_deref().unwrap_or(self.api.default_endpoint()))
    }

    /// The URL of the list of models. It stands beside the endpoint: a gateway without `/v1` has none here either.
    #[must_use]
    pub fn models_url(&self) -> Url {
        let versioned = self.endpoint.as_deref().is_none_or(|endpoint| {
            endpoint.starts_with("/v1/") || Api::ALL.into_iter().all(|api| without_version(api) != Some(endpoint))
        });
        join(&self.base_url, if versioned { "/v1/models" } else { "/models" })
    }

    /// This target as a client made with the common Python SDK would see it, and the `endpoint` that says so; `None` for an
    /// API that the SDK does not know. It may post to the same URL.
    #[must_use]
    pub fn as_sdk_target(&self) -> Option<(Self, &'static str)> {
        let endpoint = without_version(self.api)?;
        Some((Self { endpoint: Some(endpoint.to_owned()), ..self.clone() }, endpoint))
    }
}

fn without_version(api: Api) -> Option<&'static str> {
    api.default_endpoint().strip_prefix(VERSION_PREFIX)
}

fn join(base: &Url, endpoint: &str) -> Url {
    let mut url = base.clone();
    let prefix = base.path().trim_end_matches('/');
    // SGLang's native endpoint stands beside `/v1`, not below it.
    let doubled = endpoint.starts_with("/v1/") || endpoint == Api::SglangGenerate.default_endpoint();
    let prefix = if doubled { prefix.strip_suffix(VERSION_PREFIX).unwrap_or(prefix) } else { prefix };
    url.set_path(&format!("{prefix}{endpoint}"));
    url
}

#[cfg(test)]
mod tests {
    use crate::config::sections::tests::target;
    use crate::domain::api::Api;

    #[test]
    fn the_prefix_is_kept_and_the_version_never_doubled() {
        for (base, api, endpoint, request, models) in [
            ("http://h", Api::OpenAiChat, None, "http://h/v1/chat/completions", "http://h/v1/models"),
            ("http://h/", Api::OpenAiChat, None, "http://h/v1/chat/completions", "http://h/v1/models"),
            ("http://h/v1", Api::OpenAiChat, None, "http://h/v1/chat/completions", "http://h/v1/models"),
            ("http://h/v1/", Api::OpenAiCompletions, None, "http://h/v1/completions", "http://h/v1/models"),
            (
                "https://h:8/api",
                Api::OpenAiChat,
                None,
                "https://h:8/api/v1/chat/completions",
                "https://h:8/api/v1/models",
            ),
            ("http://h/a/b/v1", Api::OpenAiChat, None, "http://h/a/b/v1/chat/completions", "http://h/a/b/v1/models"),
            (
                "http://h/api/v10",
                Api::OpenAiChat,
                None,
                "http://h/api/v10/v1/chat/completions",
                "http://h/api/v10/v1/models",
            ),
            ("http://h/v1", Api::SglangGenerate, None, "http://h/generate", "http://h/v1/models"),
            ("http://h/s", Api::SglangGenerate, None, "http://h/s/generate", "http://h/s/v1/models"),
            (
                "http://h/api",
                Api::OpenAiChat,
                Some("/chat/completions"),
                "http://h/api/chat/completions",
                "http://h/api/models",
            ),
            (
                "http://h/v1",
                Api::OpenAiChat,
                Some("/v1/chat/completions"),
                "http://h/v1/chat/completions",
                "http://h/v1/models",
            ),
            ("http://h/api", Api::OpenAiChat, Some("/llm/stream"), "http://h/api/llm/stream", "http://h/api/v1/models"),
        ] {
            let mut target = target(base);
            target.api = api;
            target.endpoint = endpoint.map(str::to_owned);
            assert_eq!(target.request_url().as_str(), request, "{base} {endpoint:?}");
            assert_eq!(target.models_url().as_str(), models, "{base} {endpoint:?}");
        }
    }

    #[test]
    fn the_sdk_url_is_the_one_without_the_version() {
        let (sdk, endpoint) = target("http://h/api").as_sdk_target().unwrap();
        let url = sdk.request_url();
        assert_eq!((url.as_str(), endpoint), ("http://h/api/chat/completions", "/chat/completions"));
        let there = target("http://h/v1");
        let (sdk, _) = there.as_sdk_target().unwrap();
        assert_eq!(sdk.request_url(), there.request_url(), "there the two are the same");
    }
}
