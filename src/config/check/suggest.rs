//! "Did you mean": the known word that a slip of the finger makes this one of.

/// Share of equal letters, weighted to the beginning, from which two words are taken for one. At 0.8 `rat` finds `rate`
/// and `baseurl` finds `base_url`, while `rate` and `seed` stay strangers.
const ALIKE: f64 = 0.8;

/// The most similar candidate, if one is similar at all.
pub(super) fn did_you_mean<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_ascii_lowercase().replace('-', "_");
    let scored = candidates.map(|name| (strsim::jaro_winkler(&word, &name.replace('-', "_")), name));
    let best = scored.filter(|(score, _)| *score >= ALIKE).max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found_and_strangers_are_not() {
        let known = ["target", "workload", "rate", "concurrency"];
        for (word, meant) in
            [("rat", "rate"), ("taget", "target"), ("work-load", "workload"), ("concurency", "concurrency")]
        {
            assert_eq!(did_you_mean(word, known.into_iter()), Some(meant));
        }
        assert_eq!(did_you_mean("seed", known.into_iter()), None);
        assert_eq!(did_you_mean("", known.into_iter()), None);
    }
}
