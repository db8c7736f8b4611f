//! Outcomes and counts from whole bodies, by every rule and in the order of the rules.

use std::time::Duration;

use super::*;
use crate::clock;

/// Plays reads a millisecond apart; the first is at 1 ms.
fn play(api: Api, reads: &[&[u8]], ending: Ending) -> (Reader, Outcome, Instant) {
    let start = clock::now();
    let mut reader = Reader::new(api, Some(3));
    let mut at = start;
    for read in reads {
        at += Duration::from_millis(1);
        if reader.feed(read, at).is_break() {
            let outcome = reader.finish(Ending::Enough, at);
            return (reader, outcome, start);
        }
    }
    let outcome = reader.finish(ending, at + Duration::from_millis(1));
    (reader, outcome, start)
}

fn outcome(body: &str, ending: Ending) -> Outcome {
    play(Api::OpenAiChat, &[body.as_bytes()], ending).1
}

const ROLE: &str = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
const TOKEN: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
const FINISH: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\n";
const USAGE_3: &str = "data: {\"choices\":[],\"usage\":{\"completion_tokens\":3}}\n\n";
const USAGE_2: &str = "data: {\"choices\":[],\"usage\":{\"completion_tokens\":2}}\n\n";
const DONE: &str = "data: [DONE]\n\n";
const ERROR: &str = "data: {\"error\":{\"message\":\"engine is dead\"}}\n\n";

#[test]
fn each_rule_decides_when_no_earlier_one_does() {
    use Ending::{BadFraming, Canceled, Complete, Cut, Local, Reset, TimedOut};
    let idle = TimedOut(Outcome::TimeoutIdle);
    let html = "<!doctype html>\n<html><body>Bad Gateway</body></html>\n";
    let json = "{\n  \"choices\": [{\"message\": {\"content\": \"a\"}}]\n}";
    for (parts, ending, expected) in [
        (vec![ROLE, TOKEN, TOKEN, TOKEN, FINISH, USAGE_3, DONE], Complete, Outcome::Ok),
        (vec![TOKEN, DONE], Complete, Outcome::Ok),
        (vec![TOKEN, FINISH], Complete, Outcome::Ok),
        (vec![TOKEN, FINISH], Cut, Outcome::Ok),
        (vec![TOKEN, FINISH], Reset, Outcome::Ok),
        (vec![TOKEN, FINISH], idle, Outcome::Ok),
        (vec![TOKEN, TOKEN, FINISH, USAGE_2, DONE], Complete, Outcome::ShortOutput),
        (vec![TOKEN, ERROR], Complete, Outcome::InBandError),
        (vec![ERROR, DONE], Complete, Outcome::InBandError),
        (vec![TOKEN, FINISH, ERROR], Complete, Outcome::InBandError),
        (vec!["event: error\ndata: boom\n\n"], Complete, Outcome::InBandError),
        (vec!["event: error\n\n"], Complete, Outcome::InBandError),
        (vec![TOKEN, "{\"error\":{\"message\":\"x\"}}\n\n"], idle, Outcome::InBandError),
        (vec![TOKEN, "error: {\"code\":500}\n\n"], Complete, Outcome::InBandError),
        (vec!["{\n \"error\": {\n  \"message\": \"x\"\n }\n}\n"], Complete, Outcome::InBandError),
        (vec!["{\"error\":\"x\"}"], Complete, Outcome::InBandError),
        (vec!["[{\"error\":{\"message\":\"x\"}}]"], Complete, Outcome::InBandError),
        (vec!["[{\n  \"error\": {\"message\": \"x\"}\n}]\n"], Complete, Outcome::InBandError),
        (vec![TOKEN, "[{\"error\":{}},{\"error\":\"x\"}]\n\n", FINISH], Complete, Outcome::InBandError),
        (vec!["{\"object\":\"error\"}"], Cut, Outcome::InBandError),
        (
            vec![TOKEN, "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"abort\"}]}\n\n"],
            Complete,
            Outcome::InBandError,
        ),
        (vec![TOKEN], idle, Outcome::TimeoutIdle),
        (vec![ROLE], TimedOut(Outcome::TimeoutFirstToken), Outcome::TimeoutFirstToken),
        (vec![TOKEN], Reset, Outcome::Reset),
        (vec![], Reset, Outcome::Reset),
        (vec![TOKEN], Local, Outcome::Local),
        (vec![TOKEN], Canceled, Outcome::Canceled),
        (vec![TOKEN, "data: {bad\n\n", FINISH], Complete, Outcome::Parse),
        (vec![TOKEN, FINISH], BadFraming, Outcome::Parse),
        (vec![html], Complete, Outcome::BadResponse),
        (vec![json], Complete, Outcome::BadResponse),
        (vec!["data: {\"text\":\"a\"}\n\n", DONE], Complete, Outcome::BadResponse),
        (vec!["data: 5\n\n", "data: null\n\n"], Complete, Outcome::BadResponse),
        (vec![ROLE, FINISH, DONE], Complete, Outcome::Empty),
        (vec![ROLE], Complete, Outcome::Empty),
        (vec![DONE], Complete, Outcome::Empty),
        (vec![": ping\n\n", "data: \n\n"], Complete, Outcome::Empty),
        (vec![], Complete, Outcome::Empty),
        (vec![ROLE, TOKEN], Complete, Outcome::Truncated),
        (vec![ROLE, TOKEN], Cut, Outcome::Truncated),
        (vec![TOKEN, "data: {\"choices\":[{\"delta\":{\"con"], Cut, Outcome::Truncated),
        (vec!["data: {\"choices\":[{\"delta\":{\"con"], Cut, Outcome::Empty),
        (vec![TOKEN, FINISH, "data: [DONE]"], Complete, Outcome::Ok),
        (vec![TOKEN, FINISH.trim_end()], Complete, Outcome::Ok),
    ] {
        assert_eq!(outcome(&parts.concat(), ending), expected, "{parts:?}, {ending:?}");
    }
}

#[test]
fn the_first_and_last_token_bearing_events_are_stamped_by_their_reads() {
    let reads = [": ping\n\n", ROLE, TOKEN, TOKEN, FINISH, USAGE_3, DONE].map(str::as_bytes);
    let (reader, outcome, start) = play(Api::OpenAiChat, &reads, Ending::Complete);
    let ms = |at: Option<Instant>| at.map(|at| (at - start).as_millis());
    let answer = reader.answer();
    assert_eq!(outcome, Outcome::Ok);
    assert_eq!((ms(answer.first_choices_at), ms(answer.first_at()), ms(answer.last_at())), (Some(2), Some(3), Some(4)));
    assert_eq!((ms(answer.first_answer_at), ms(answer.closed_at)), (Some(3), Some(7)));
    assert_eq!((answer.output_tokens(), answer.token_reads), (Some(3), 2));
}

#[test]
fn chunks_of_one_socket_read_are_one_read() {
    let at = clock::now();
    let mut reader = Reader::new(Api::OpenAiChat, None);
    for (after, event) in [(0, TOKEN), (0, TOKEN), (1, TOKEN), (1, TOKEN)] {
        assert!(reader.feed(event.as_bytes(), at + Duration::from_millis(after)).is_continue());
    }
    assert_eq!((reader.answer().tokens.len(), reader.answer().token_reads), (4, 2));
}

#[test]
fn reasoning_bears_tokens_but_is_no_answer() {
    let thought = "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\"}}]}\n\n";
    let (reader, _, start) = play(Api::OpenAiChat, &[thought.as_bytes(), TOKEN.as_bytes()], Ending::Complete);
    let answer = reader.answer();
    assert_eq!(answer.first_at(), Some(start + Duration::from_millis(1)));
    assert_eq!(answer.first_answer_at, Some(start + Duration::from_millis(2)));
    assert!(answer.reasoning_shown);
}

#[test]
fn growth_of_the_count_bears_tokens_even_when_the_text_is_empty() {
    let event = |content: &str, count: u32| {
        format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{content}\"}}}}],\"usage\":{{\"completion_tokens\":{count}}}}}\n\n"
        )
    };
    let body = [event("", 0), event("a", 2), event("", 3), event("", 3), event("b", 3), event("c", 7)].concat();
    let (reader, ..) = play(Api::OpenAiChat, &[(body + USAGE_3).as_bytes()], Ending::Complete);
    let counts: Vec<_> = reader.answer().tokens.iter().map(|event| event.tokens).collect();
    assert_eq!(counts, [Some(2), Some(1), Some(0), Some(4)]);
}

#[test]
fn a_lone_total_beside_an_empty_delta_is_no_growth() {
    let total = "data: {\"choices\":[{\"delta\":{\"content\":\"\"},\"finish_reason\":\"length\"}],\"usage\":{\"completion_tokens\":2}}\n\n";
    let (reader, outcome, _) = play(Api::OpenAiChat, &[[TOKEN, TOKEN, total].concat().as_bytes()], Ending::Complete);
    assert_eq!(reader.answer().tokens.len(), 2);
    assert_eq!((reader.answer().output_tokens(), outcome), (Some(2), Outcome::ShortOutput));
}

#[test]
fn a_usage_without_choices_never_bears_a_token() {
    let body = [TOKEN, USAGE_2, USAGE_3, DONE].concat();
    let (reader, ..) = play(Api::OpenAiChat, &[body.as_bytes()], Ending::Complete);
    assert_eq!(reader.answer().tokens.len(), 1);
    assert_eq!(reader.answer().output_tokens(), Some(3), "the last one seen wins");
}

#[test]
fn an_absurd_usage_is_no_usage_and_does_not_undo_a_sane_one() {
    for absurd in ["-5", "1e300", "4000000000", "\"9\"", "null", "2.5"] {
        let event = format!("data: {{\"choices\":[],\"usage\":{{\"completion_tokens\":{absurd}}}}}\n\n");
        let (reader, ..) = play(Api::OpenAiChat, &[[TOKEN, &event, DONE].concat().as_bytes()], Ending::Complete);
        assert_eq!(reader.answer().output_tokens(), None, "{absurd}");
        let (reader, ..) = play(Api::OpenAiChat, &[[TOKEN, USAGE_3, &event].concat().as_bytes()], Ending::Complete);
        assert_eq!(reader.answer().output_tokens(), Some(3), "{absurd}");
    }
}

#[test]
fn a_count_of_zero_beside_tokens_is_no_count() {
    let zero = "data: {\"choices\":[{\"text\":\"a\"}],\"usage\":{\"completion_tokens\":0}}\n\n";
    let (reader, outcome, _) =
        play(Api::OpenAiCompletions, &[[zero, zero, DONE].concat().as_bytes()], Ending::Complete);
    let counts: Vec<_> = reader.answer().tokens.iter().map(|event| event.tokens).collect();
    assert_eq!((counts, reader.answer().output_tokens(), outcome), (vec![None, None], None, Outcome::Ok));
}

#[test]
fn sglang_text_grows_with_the_count_or_without_it() {
    let with_count = |text: &str, count: u32| {
        format!(
            "data: {{\"text\":\"{text}\",\"meta_info\":{{\"completion_tokens\":{count},\"finish_reason\":null}}}}\n\n"
        )
    };
    let end =
        "data: {\"text\":\"abc\",\"meta_info\":{\"completion_tokens\":3,\"finish_reason\":{\"type\":\"length\"}}}\n\n";
    let body = [with_count("", 0), with_count("a", 1), with_count("abc", 3), end.to_owned(), DONE.to_owned()].concat();
    let (reader, outcome, _) = play(Api::SglangGenerate, &[body.as_bytes()], Ending::Complete);
    let counts: Vec<_> = reader.answer().tokens.iter().map(|event| event.tokens).collect();
    assert_eq!((counts, outcome), (vec![Some(1), Some(2)], Outcome::Ok));

    let body =
        "data: {\"text\":\"\"}\n\ndata: {\"text\":\"a\"}\n\ndata: {\"text\":\"ab\"}\n\ndata: {\"text\":\"ab\"}\n\n";
    let (reader, outcome, _) = play(Api::SglangGenerate, &[body.as_bytes()], Ending::Complete);
    let counts: Vec<_> = reader.answer().tokens.iter().map(|event| event.tokens).collect();
    assert_eq!((counts, outcome), (vec![None, None], Outcome::Truncated));
}

#[test]
fn a_body_beyond_its_limits_is_a_parse_error_and_bounded() {
    let mut reader = Reader::new(Api::OpenAiChat, None);
    let block = TOKEN.repeat(1000);
    let at = clock::now();
    while reader.feed(block.as_bytes(), at).is_continue() {
        assert!(reader.answer().tokens.len() <= MAX_EVENTS + 1);
    }
    assert_eq!(reader.finish(Ending::Enough, at), Outcome::Parse);

    let mut reader = Reader::new(Api::OpenAiChat, None);
    let comment = [b":".to_vec(), vec![b'x'; 1 << 20], b"\n".to_vec()].concat();
    while reader.feed(&comment, at).is_continue() {
        assert!(reader.body_bytes <= MAX_BODY);
    }
    assert_eq!(reader.finish(Ending::Enough, at), Outcome::Parse);
}

#[test]
fn a_whole_json_body_of_ten_megabytes_is_a_bad_response() {
    let body = format!("{{\"choices\":[{{\"message\":{{\"content\":\"{}\"}}}}]}}", "a".repeat(10 << 20));
    for reads in [vec![body.as_bytes()], body.as_bytes().chunks(4096).collect()] {
        let (reader, outcome, _) = play(Api::OpenAiChat, &reads, Ending::Complete);
        assert_eq!(outcome, Outcome::BadResponse);
        assert!(reader.into_parts().1.unwrap().len() <= RAW_DETAIL);
    }
}

#[test]
fn hostile_blank_lines_cost_linear_time() {
    // Twice the input may cost at most a few times the work; the square of 30,000 blocks would not end within the test.
    let body = "{\"a\":[1,\n\n".repeat(30_000);
    assert_eq!(outcome(&body, Ending::Complete), Outcome::BadResponse);
}

#[test]
fn what_a_terminal_must_not_see_is_not_in_readable_text() {
    assert_eq!(readable(" a\u{1b}[31m\u{202e}b\n\u{200b}c\0 ", 100).as_deref(), Some("a [31m b  c"));
    assert_eq!(readable("日本語日本語", 4).as_deref(), Some("日本語日"));
    assert_eq!(readable("\u{200b}\n", 100), None);
}

#[test]
fn the_detail_says_what_the_server_said() {
    for (body, expected) in [
        (ERROR, "engine is dead"),
        ("<html>\u{1}<b>502</b>\n\n", "<html> <b>502</b>"),
        ("data: {\"object\":\"other\"}\n\n", "other"),
        ("data: {bad\n\n", "{bad"),
    ] {
        let (reader, ..) = play(Api::OpenAiChat, &[body.as_bytes()], Ending::Complete);
        let detail = readable(&reader.into_parts().1.unwrap(), MAX_DETAIL).unwrap();
        assert!(detail.contains(expected), "{detail}");
    }
}
