//! The list of models that a gateway offers.

use serde_json::Value;

/// One model of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// The id that requests name.
    pub id: String,
    /// Context length, where the server tells it (vLLM, SGLang).
    pub max_model_len: Option<u64>,
}

/// Reads a list of models: OpenAI's `data`, the `models` of some routers, or a bare list; entries with an `id` or `name`.
///
/// `None` when the text is not such a list. Entries that are none are left out.
#[must_use]
pub fn parse(text: &str) -> Option<Vec<Model>> {
    let value: Value = serde_json::from_str(text).ok()?;
    let list = value.as_array().or_else(|| value.get("data").or_else(|| value.get("models"))?.as_array())?;
    let model = |entry: &Value| {
        let id = entry.as_str().or_else(|| entry.get("id")?.as_str()).or_else(|| entry.get("name")?.as_str())?;
        Some(Model { id: id.to_owned(), max_model_len: entry.get("max_model_len").and_then(Value::as_u64) })
    };
    Some(list.iter().filter_map(model).collect())
}

/// The model whose id is most like `wanted`, if it is so much alike that it may have been meant.
#[must_use]
pub fn nearest<'a>(list: &'a [Model], wanted: &str) -> Option<&'a Model> {
    let alike = |model: &Model| strsim::jaro_winkler(&model.id.to_lowercase(), &wanted.to_lowercase());
    list.iter()
        .map(|model| (alike(model), model))
        .filter(|(alike, _)| *alike > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, model)| model)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_of_every_kind_of_server_are_read() {
        let model = |id: &str, max_model_len| Model { id: id.into(), max_model_len };
        for (text, expected) in [
            (r#"{"object":"list","data":[{"id":"a","max_model_len":4096}]}"#, Some(vec![model("a", Some(4096))])),
            (r#"{"data":[{"id":"a"},{"id":"b"},{"x":1},5]}"#, Some(vec![model("a", None), model("b", None)])),
            (r#"{"models":[{"name":"a"}]}"#, Some(vec![model("a", None)])),
            (r#"["a"]"#, Some(vec![model("a", None)])),
            (r#"{"data":[]}"#, Some(vec![])),
            (r#"{"error":"no"}"#, None),
            ("<html>", None),
            ("5", None),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
        // Deeper than any list: an error, not a stack overflow.
        assert_eq!(parse(&"[".repeat(1 << 20)), None);
    }
}
