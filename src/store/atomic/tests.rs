use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::store::tests::Folder;

const KIND: Kind = Kind(*b"latc");

#[test]
fn what_was_written_is_read_and_nothing_else_is_left() {
    let folder = Folder::new();
    let path = folder.join("latch");
    assert_eq!(read(&path, KIND, 3).unwrap(), None);
    for content in [&b""[..], b"x", &[0; 70_000], b"the last"] {
        write(&path, KIND, 3, content).unwrap();
        assert_eq!(read(&path, KIND, 3).unwrap().unwrap(), content);
    }
    assert_eq!(folder.names(), ["latch"]);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn any_byte_that_is_wrong_or_missing_is_noticed() {
    let folder = Folder::new();
    let path = folder.join("latch");
    write(&path, KIND, 3, b"some content").unwrap();
    let whole = fs::read(&path).unwrap();
    assert_eq!(whole.len(), HEADER + 12);
    let damaged = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        match read(&path, KIND, 3) {
            Err(FileError::Damaged { what, .. }) => what,
            other => panic!("{other:?} of {bytes:?}"),
        }
    };
    for at in 0..whole.len() {
        damaged(&whole[..at]);
        for flip in [1, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            damaged(&bytes);
        }
    }
    assert_eq!(damaged(&[&whole[..], b"\0"].concat()), FileDamage::Length);
    assert_eq!(damaged(b"not a file of ours, but long enough"), FileDamage::Magic);
}

#[test]
fn a_file_of_another_kind_or_version_says_so() {
    let folder = Folder::new();
    let path = folder.join("latch");
    write(&path, KIND, 3, b"some content").unwrap();
    let refused = |kind, schema| read(&path, kind, schema).unwrap_err();
    assert!(matches!(refused(KIND, 4), FileError::Older { found: 3, known: 4, .. }));
    assert!(matches!(refused(KIND, 2), FileError::Newer { found: 3, known: 2, .. }));
    let other = refused(Kind(*b"prom"), 2);
    assert_eq!(other.to_string(), format!("{} holds Kind(latc), not Kind(prom)", path.display()));
}

#[test]
fn a_file_that_cannot_be_written_stays_as_it_was() {
    let folder = Folder::new();
    let path = folder.join("latch");
    fs::create_dir_all(path.join("in the way")).unwrap();
    let refused = write(&path, KIND, 3, b"some content").unwrap_err();
    assert!(refused.to_string().contains(&path.display().to_string()), "{refused}");
    assert_eq!(folder.names(), ["latch"], "no temporary file");
    let nowhere = folder.join("no such folder/latch");
    assert!(matches!(write(&nowhere, KIND, 3, b""), Err(FileError::Write { .. })));
}

#[test]
fn what_is_too_large_is_neither_written_nor_read() {
    let folder = Folder::new();
    let path = folder.join("latch");
    let too_large = |result: Result<(), FileError>| assert!(matches!(result, Err(FileError::TooLarge { .. })));
    too_large(write(&path, KIND, 3, &vec![0; MAX_CONTENT + 1]));
    assert!(folder.names().is_empty());
    File::create(&path).unwrap().set_len((HEADER + MAX_CONTENT + 1) as u64).unwrap();
    too_large(read(&path, KIND, 3).map(|_| ()));
}

#[test]
fn setting_aside_overwrites_nothing() {
    let folder = Folder::new();
    let path = folder.join("latch");
    for content in ["first", "second", "third"] {
        fs::write(&path, content).unwrap();
        set_aside(&path).unwrap();
    }
    fs::write(&path, "fourth").unwrap();
    assert_eq!(copy_aside(&path).unwrap(), folder.join("latch.bad.3"));
    assert_eq!(folder.names(), ["latch", "latch.bad", "latch.bad.1", "latch.bad.2", "latch.bad.3"]);
    for (name, content) in
        [("latch.bad", "first"), ("latch.bad.1", "second"), ("latch.bad.2", "third"), ("latch.bad.3", "fourth")]
    {
        assert_eq!(fs::read_to_string(folder.join(name)).unwrap(), content);
    }
}

#[test]
fn setting_aside_what_is_not_there_leaves_nothing() {
    let folder = Folder::new();
    assert_eq!(set_aside(&folder.join("latch")).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert!(copy_aside(&folder.join("latch")).is_err());
    assert!(folder.names().is_empty());
}

#[test]
fn only_our_own_temporary_files_are_swept_away() {
    let folder = Folder::new();
    let left = ".latch.0123456789abcdef.tmp";
    let mut kept =
        [".0123456789abcdef.tmp", ".latch.0123456789abcdeg.tmp", ".latch.012345.tmp", "latch.0123456789abcdef.tmp"];
    for name in kept.iter().chain([&left]) {
        fs::write(folder.join(name), "").unwrap();
    }
    assert_eq!(remove_leftovers(&folder).unwrap(), [folder.join(left)]);
    kept.sort_unstable();
    assert_eq!(folder.names(), kept);
}

#[test]
fn a_writer_that_dies_leaves_what_is_swept_away() {
    let folder = Folder::new();
    let path = folder.join("latch");
    write(&path, KIND, 3, b"old").unwrap();
    let mut unfinished = Temporary::beside(&path).unwrap();
    unfinished.file.write_all(b"half").unwrap();
    std::mem::forget(unfinished);
    assert_eq!(read(&path, KIND, 3).unwrap().unwrap(), b"old");
    assert_eq!(remove_leftovers(&folder).unwrap().len(), 1);
    assert_eq!(folder.names(), ["latch"]);
}
