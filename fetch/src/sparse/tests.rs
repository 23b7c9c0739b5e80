#![expect(
    clippy::single_range_in_vec_init,
    reason = "lists of one range are what is meant"
)]

use std::io::Write;

use super::*;
use crate::testing::{Manners, TestServer};

/// Makes bytes that differ from themselves at every shift.
fn body(length: usize) -> Vec<u8> {
    (0..length)
        .map(|i| u8::try_from(i * 31 % 251).unwrap() ^ u8::try_from(i / 65_536 % 256).unwrap())
        .collect()
}

fn read_at(copy: &mut SparseCopy, at: u64, n: usize) -> Vec<u8> {
    copy.seek(SeekFrom::Start(at)).unwrap();
    let mut bytes = vec![0; n];
    copy.read_exact(&mut bytes).unwrap();
    bytes
}

#[test]
#[expect(
    clippy::single_range_in_vec_init,
    reason = "a list of one range is what is meant"
)]
fn only_what_is_asked_for_is_fetched_and_a_second_run_asks_for_nothing() {
    let body = body(5 << 20);
    let server = TestServer::start(body.clone(), Manners::default());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy");
    let mut copy = SparseCopy::open(&server.url, "aa", &path).unwrap();
    copy.fetch(vec![100..200, 300..400, 3 << 20..(3 << 20) + 10], "test")
        .unwrap();
    assert_eq!(read_at(&mut copy, 300, 100), body[300..400]);
    assert_eq!(copy.fetched(), 1 + 300 + 10);
    // The first request is one byte to learn the length. Neighbouring ranges are one request.
    assert_eq!(server.requests(), ["0-0", "100-399", "3145728-3145737"]);
    drop(copy);

    let mut again = SparseCopy::open(&server.url, "aa", &path).unwrap();
    again.fetch(vec![150..350], "test").unwrap();
    assert_eq!((again.fetched(), server.requests().len()), (0, 3));
    let other = SparseCopy::open(&server.url, "bb", &path).unwrap();
    assert_eq!(other.fetched(), 1, "the copy of another file is not used");
}

#[test]
fn reads_and_seeks_like_a_file() {
    let body = body((2 << 20) + 5);
    let server = TestServer::start(body.clone(), Manners::default());
    let folder = tempfile::tempdir().unwrap();
    let mut copy = SparseCopy::open(&server.url, "aa", &folder.path().join("copy")).unwrap();
    copy.seek(SeekFrom::End(-7)).unwrap();
    let mut tail = Vec::new();
    copy.read_to_end(&mut tail).unwrap();
    assert_eq!(tail, body[body.len() - 7..]);
    assert_eq!(
        read_at(&mut copy, (1 << 20) - 3, 6),
        body[(1 << 20) - 3..(1 << 20) + 3]
    );
    assert!(copy.seek(SeekFrom::Current(-(3 << 20))).is_err());
}

#[test]
fn a_cut_connection_is_continued_where_it_stopped() {
    let body = body(1 << 20);
    let server = TestServer::start(
        body.clone(),
        Manners {
            cuts: 2,
            cut_after: 1000,
            ..Manners::default()
        },
    );
    let folder = tempfile::tempdir().unwrap();
    let mut copy =
        SparseCopy::open(&server.url, &server.sha256, &folder.path().join("copy")).unwrap();
    copy.fetch(vec![0..body.len() as u64], "test").unwrap();
    assert_eq!(server.requests(), ["0-0", "1-1048575", "1001-1048575"]);
    assert_eq!(copy.fetched(), body.len() as u64);
    copy.check_if_whole().unwrap();
}

#[test]
fn an_interrupted_run_is_continued_by_the_next() {
    let body = body(1 << 20);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy");
    let server = TestServer::start(body.clone(), Manners::default());
    let mut copy = SparseCopy::open(&server.url, "aa", &path).unwrap();
    copy.fetch(vec![0..600_000], "test").unwrap();
    drop(copy);
    // The list ends in the middle of a line, as after a kill.
    let mut notes = OpenOptions::new()
        .append(true)
        .open(folder.path().join("copy.have"))
        .unwrap();
    notes.write_all(b"600000 70").unwrap();

    let mut copy = SparseCopy::open(&server.url, "aa", &path).unwrap();
    copy.fetch(vec![0..body.len() as u64], "test").unwrap();
    assert_eq!(server.requests().last().unwrap(), "600000-1048575");
    assert_eq!(read_at(&mut copy, 599_990, 20), body[599_990..600_010]);
}

#[test]
fn a_server_without_ranges_gives_the_whole_once() {
    let body = body(300_000);
    let server = TestServer::start(
        body.clone(),
        Manners {
            no_ranges: true,
            ..Manners::default()
        },
    );
    let folder = tempfile::tempdir().unwrap();
    let mut copy =
        SparseCopy::open(&server.url, &server.sha256, &folder.path().join("copy")).unwrap();
    assert_eq!(read_at(&mut copy, 200_000, 50), body[200_000..200_050]);
    copy.check_if_whole().unwrap();
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_whole_file_of_another_hash_is_removed_and_named() {
    let server = TestServer::start(
        body(5000),
        Manners {
            no_ranges: true,
            ..Manners::default()
        },
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy");
    let copy = SparseCopy::open(&server.url, "00", &path).unwrap();
    let error = copy.check_if_whole().unwrap_err().to_string();
    assert!(
        error.contains(&path.display().to_string()) && error.contains("removed"),
        "{error}"
    );
    assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
}

#[test]
fn a_refusal_is_not_asked_again() {
    for status in [403, 404] {
        let server = TestServer::start(
            body(10),
            Manners {
                status: Some(status),
                ..Manners::default()
            },
        );
        let folder = tempfile::tempdir().unwrap();
        let error = SparseCopy::open(&server.url, "aa", &folder.path().join("copy")).unwrap_err();
        assert!(
            format!("{error:#}").contains(&status.to_string()),
            "{error:#}"
        );
        assert_eq!(server.requests().len(), 1);
    }
}
