use std::error::Error;
use std::process::Command;

use super::*;

/// A folder that is gone with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("steadyload-prompts-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self, bytes: &[u8]) -> PathBuf {
        let path = self.0.join("data");
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

fn open(path: &Path, form: Form, broken: BrokenLines) -> Result<Entries, SourceError> {
    Entries::open("chat", form, &DataFile { path: path.to_owned(), broken })
}

fn refused(path: &Path, form: Form) -> String {
    let error = open(path, form, BrokenLines::Refuse).unwrap_err();
    let source = error.source().map(|source| format!(": {source}")).unwrap_or_default();
    let told = format!("{error}{source}");
    assert!(told.starts_with("workloads.chat.path: "), "{told}");
    told
}

#[test]
fn entries_are_read_at_their_places() {
    let folder = Folder::new("places");
    let lines: String = (0..1000).map(|n| format!("{{\"prompt\":\"q{n}\",\"id\":{n}}}\n\n")).collect();
    let entries = open(&folder.file(lines.as_bytes()), Form::Jsonl, BrokenLines::Refuse).unwrap();
    assert_eq!((entries.len(), entries.skipped()), (1000, Skipped::default()));
    for n in [0, 999, 500, 1] {
        assert_eq!(entries.get(n).unwrap().messages[0].text, format!("q{n}"));
    }
    let turns = |n| format!("{{\"conversations\":[{{\"value\":\"q{n}\"}},{{\"value\":\"a\"}}]}}");
    let list = format!("[{},\n{{\"conversations\":[]}},{}]", turns(1), turns(2));
    let entries = open(&folder.file(list.as_bytes()), Form::ShareGpt, BrokenLines::Refuse).unwrap();
    assert_eq!((entries.len(), entries.skipped()), (2, Skipped { broken: 0, short: 1 }));
    assert_eq!(entries.get(1).unwrap().messages[0].text, "q2");
}

#[test]
fn what_is_no_file_is_told_with_its_setting() {
    let folder = Folder::new("none");
    assert!(refused(&folder.0.join("nowhere"), Form::Jsonl).contains("cannot be read"));
    assert!(refused(&folder.0, Form::Jsonl).contains("is a folder, wants a file"));
    assert!(refused(Path::new("/dev/zero"), Form::Jsonl).contains("is a device"));
    let pipe = folder.0.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // Nobody writes to it: opening it would wait for ever.
    assert!(refused(&pipe, Form::Jsonl).contains("is a pipe, wants a file"));
    assert!(refused(&folder.file(b""), Form::Jsonl).contains("no byte"));
    assert!(refused(&folder.file(b"\n \n"), Form::Jsonl).contains("no entry that can be used"));
    assert!(refused(&folder.file(b"[]"), Form::ShareGpt).contains("no entry that can be used"));
    assert!(refused(&folder.file(b"[{\"conversations\":[]}]"), Form::ShareGpt).contains("no entry"));
    assert!(refused(&folder.file(b"\n{}"), Form::ShareGpt).contains("data:2: there is no [ at its beginning"));
}

#[test]
fn broken_lines_are_named_up_to_ten_or_left_out_and_counted() {
    let folder = Folder::new("broken");
    let good = "{\"prompt\":\"q\"}\n";
    let path = folder.file(format!("{good}{{\n{good}{{\"prompt\":7}}\n").as_bytes());
    let told = refused(&path, Form::Jsonl);
    assert!(told.contains("has 2 lines broken: line 2: EOF while parsing an object, line 4: invalid type"), "{told}");
    assert!(told.ends_with("or set workloads.chat.broken_lines = \"skip\""), "{told}");
    let entries = open(&path, Form::Jsonl, BrokenLines::Skip).unwrap();
    assert_eq!((entries.len(), entries.skipped()), (2, Skipped { broken: 2, short: 0 }));
    let told = refused(&folder.file(format!("{}{good}", "{\n".repeat(12)).as_bytes()), Form::Jsonl);
    assert!(told.contains("12 lines") && told.contains("line 10: ") && !told.contains("line 11: "), "{told}");
    let told = refused(&folder.file(b"{\"prompt\":\"a\"}\n{\"prompt\":\"\xff\"}\n"), Form::Jsonl);
    assert!(told.contains("one line broken: line 2: is not UTF-8"), "{told}");
    let all = folder.file(b"{\n{\n");
    assert!(open(&all, Form::Jsonl, BrokenLines::Skip).unwrap_err().to_string().contains("no entry"));
}

#[test]
fn a_list_that_is_cut_off_loses_its_last_entry_or_is_refused() {
    let folder = Folder::new("cut");
    let whole = b"[{\"conversations\":[{\"value\":\"q\"},{\"value\":\"a\"}]},\n{\"conversations\":[{\"val";
    let path = folder.file(whole);
    assert!(refused(&path, Form::ShareGpt).contains("data:2: an entry has no end"));
    let entries = open(&path, Form::ShareGpt, BrokenLines::Skip).unwrap();
    assert_eq!((entries.len(), entries.skipped().broken), (1, 1));
}

#[test]
fn a_file_that_has_changed_is_not_read() {
    let folder = Folder::new("changed");
    let path = folder.file(b"{\"prompt\":\"a\"}\n");
    let entries = open(&path, Form::Jsonl, BrokenLines::Refuse).unwrap();
    assert!(entries.get(0).is_ok());
    // Longer, cut off, and as long but of another time.
    for bytes in [b"{\"prompt\":\"a\"}\n\n".as_slice(), b"{", b"{\"prompt\":\"b\"}\n"] {
        fs::write(&path, bytes).unwrap();
        let touched = File::options().write(true).open(&path).unwrap();
        touched.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let told = entries.get(0).unwrap_err().to_string();
        assert!(told.contains("workloads.chat.path") && told.contains("changed"), "{told}");
    }
    // One that was replaced is still there for those that have it open.
    let path = folder.file(b"{\"prompt\":\"a\"}\n");
    let entries = open(&path, Form::Jsonl, BrokenLines::Refuse).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(entries.get(0).is_ok());
}

#[test]
fn two_gigabytes_without_a_line_end_are_refused_at_once() {
    let folder = Folder::new("sparse");
    let path = folder.file(b"{\"prompt\":\"a\"}\n");
    File::options().write(true).open(&path).unwrap().set_len(2 << 30).unwrap();
    let told = refused(&path, Form::Jsonl);
    assert!(told.contains("line 2: is longer than 16777216 bytes"), "{told}");
    let list = folder.file(b"[\"");
    File::options().write(true).open(&list).unwrap().set_len(2 << 30).unwrap();
    assert!(refused(&list, Form::ShareGpt).contains("line 1: is longer than"));
}

#[test]
fn its_bytes_are_its_digest() {
    let folder = Folder::new("digest");
    let bytes = b"{\"prompt\":\"a\"}\n{\"prompt\":\"b\"}\n";
    let entries = open(&folder.file(bytes), Form::Jsonl, BrokenLines::Refuse).unwrap();
    assert_eq!(entries.digest(), ring::digest::digest(&SHA256, bytes).as_ref());
}
