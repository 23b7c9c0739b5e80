#![expect(
    clippy::single_range_in_vec_init,
    reason = "lists of one range are what is meant"
)]

use super::*;
use crate::testing::{Manners, TestServer};

/// Makes bytes that differ from themselves at every shift.
fn body(length: usize) -> Vec<u8> {
    let small = |n: usize| u8::try_from(n).unwrap();
    let byte = |i: usize| small(i * 31 % 251) ^ small(i / 65_536 % 256);
    (0..length).map(byte).collect()
}

fn serve(body: &[u8]) -> TestServer {
    TestServer::start(body.to_vec(), Manners::default())
}

fn read_at(copy: &mut SparseCopy, at: u64, n: usize) -> Vec<u8> {
    copy.seek(SeekFrom::Start(at)).unwrap();
    let mut bytes = vec![0; n];
    copy.read_exact(&mut bytes).unwrap();
    bytes
}

#[test]
fn only_what_is_asked_for_is_fetched_and_a_second_run_asks_for_nothing() {
    let body = body(5 << 20);
    let server = serve(&body);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy");
    let mut copy = SparseCopy::open(&server.url, "aa", &path).unwrap();
    let wanted = [300_000..300_100, 600_000..600_100, 3 << 20..(3 << 20) + 10];
    copy.fetch(&wanted, "test").unwrap();
    assert_eq!(read_at(&mut copy, 300_000, 100), body[300_000..300_100]);
    assert_eq!(copy.fetched(), 4 * BLOCK as u64);
    // The first request learns the length. Neighbouring blocks are one request.
    let asked = ["0-262143", "262144-786431", "3145728-3407871"];
    assert_eq!(server.requests(), asked);
    drop(copy);

    let mut again = SparseCopy::open(&server.url, "aa", &path).unwrap();
    again.fetch(&wanted, "test").unwrap();
    assert_eq!((again.fetched(), server.requests().len()), (0, 3));
    // The copy of another file is not used.
    let other = SparseCopy::open(&server.url, "bb", &path).unwrap();
    assert_eq!(other.fetched(), BLOCK as u64);
}

#[test]
fn reads_and_seeks_like_a_file() {
    let body = body((2 << 20) + 5);
    let server = serve(&body);
    let folder = tempfile::tempdir().unwrap();
    let mut copy = SparseCopy::open(&server.url, "aa", &folder.path().join("copy")).unwrap();
    copy.seek(SeekFrom::End(-7)).unwrap();
    let mut tail = Vec::new();
    copy.read_to_end(&mut tail).unwrap();
    assert_eq!(tail, body[body.len() - 7..]);
    let at = (1 << 20) - 3;
    assert_eq!(read_at(&mut copy, at as u64, 6), body[at..at + 6]);
    assert!(copy.seek(SeekFrom::Current(-(3 << 20))).is_err());
}

#[test]
fn a_cut_connection_is_continued_where_it_stopped() {
    let body = body(1 << 20);
    let cut = Manners {
        cuts: 2,
        cut_after: 300_000,
        ..Manners::default()
    };
    let server = TestServer::start(body.clone(), cut);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy");
    let mut copy = SparseCopy::open(&server.url, &server.sha256, &path).unwrap();
    copy.fetch(&[0..body.len() as u64], "test").unwrap();
    let asked = ["0-262143", "262144-1048575", "524288-1048575"];
    assert_eq!(server.requests(), asked);
    assert_eq!(copy.fetched(), body.len() as u64);
    copy.check_if_whole().unwrap();
}

#[test]
fn an_interrupted_run_is_continued_by_the_next() {
    let body = body(1 << 20);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy");
    let server = serve(&body);
    let mut copy = SparseCopy::open(&server.url, "aa", &path).unwrap();
    copy.fetch(&[0..500_000], "test").unwrap();
    drop(copy);
    // The list ends in the middle of a line, as after a kill: of the block 30, perhaps.
    let list = folder.path().join("copy.have");
    let text = fs::read_to_string(&list).unwrap() + "3";
    fs::write(&list, text).unwrap();

    let mut copy = SparseCopy::open(&server.url, "aa", &path).unwrap();
    copy.fetch(&[0..body.len() as u64], "test").unwrap();
    assert_eq!(server.requests().last().unwrap(), "524288-1048575");
    assert_eq!(read_at(&mut copy, 524_280, 20), body[524_280..524_300]);
}

#[test]
fn a_server_without_ranges_gives_the_whole_once() {
    let body = body(300_000);
    let whole = Manners {
        no_ranges: true,
        ..Manners::default()
    };
    let server = TestServer::start(body.clone(), whole);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy");
    let mut copy = SparseCopy::open(&server.url, &server.sha256, &path).unwrap();
    assert_eq!(read_at(&mut copy, 200_000, 50), body[200_000..200_050]);
    copy.check_if_whole().unwrap();
    assert_eq!(server.requests().len(), 1);

    let other = SparseCopy::open(&server.url, "00", &path).unwrap();
    let error = other.check_if_whole().unwrap_err().to_string();
    let shown = path.display().to_string();
    let is_named = error.contains(&shown) && error.contains("removed");
    assert!(is_named, "{error}");
    assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
}

#[test]
fn a_refusal_is_not_asked_again() {
    for status in [403, 404] {
        let refusal = Manners {
            status: Some(status),
            ..Manners::default()
        };
        let server = TestServer::start(body(10), refusal);
        let folder = tempfile::tempdir().unwrap();
        let opened = SparseCopy::open(&server.url, "aa", &folder.path().join("copy"));
        let error = format!("{:#}", opened.unwrap_err());
        assert!(error.contains(&status.to_string()), "{error}");
        assert_eq!(server.requests().len(), 1);
    }
}
