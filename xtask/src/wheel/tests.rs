use std::io::Cursor;

use zip::CompressionMethod;
use zip::write::{SimpleFileOptions, ZipWriter};

use super::*;
use crate::report::StageReport;
use metaclaw_test_kit::{Reply, Server};

const RECORD: &str = "t-1.dist-info/RECORD";

/// A wheel of these files; `listed` gives what RECORD claims of each.
fn zip_of(files: &[(&str, Vec<u8>)], listed: impl Fn(&str, &[u8]) -> String) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    let mut record = String::new();
    for (name, bytes) in files {
        zip.start_file(*name, options).unwrap();
        zip.write_all(bytes).unwrap();
        record += &listed(name, bytes);
    }
    record += RECORD;
    record += ",,\n";
    zip.start_file(RECORD, options).unwrap();
    zip.write_all(record.as_bytes()).unwrap();
    zip.finish().unwrap().into_inner()
}

fn honest(name: &str, bytes: &[u8]) -> String {
    let hash = URL_SAFE_NO_PAD.encode(Sha256::digest(bytes));
    format!("{name},sha256={hash},{}\n", bytes.len())
}

/// Does not compress: the archive is as large as its parts.
fn noise(length: usize) -> Vec<u8> {
    let mut seed = 7_u64;
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        seed.to_be_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}

/// A wheel on a server.
struct ServedWheel {
    server: Server,
    sha256: String,
}

fn serve(wheel: Vec<u8>) -> ServedWheel {
    ServedWheel {
        sha256: metaclaw_fetch::hex(&Sha256::digest(&wheel)),
        server: Server::new(move |request| Reply::file(&wheel, request)),
    }
}

fn fetch(server: &ServedWheel, home: &Path) -> (Result<Vec<PathBuf>>, u64) {
    let places = Places {
        root: home.into(),
        cache: home.into(),
        target: home.into(),
    };
    let wheel = Wheel {
        requirement: "t==1".into(),
        url: format!("{}/a.whl", server.server.url()),
        sha256: server.sha256.clone(),
    };
    let mut bytes = 0;
    let place = |name: &str| Some(home.join("out").join(name.strip_prefix("t/lib/")?));
    let result = StageReport::default().stage("test", |stage| {
        let files = take(&places, &wheel, stage, place);
        bytes = stage.bytes;
        files
    });
    (result, bytes)
}

fn refusal(server: &ServedWheel, home: &Path) -> String {
    format!("{:#}", fetch(server, home).0.unwrap_err())
}

fn n_files(folder: PathBuf) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[test]
fn takes_the_wanted_members_and_no_more_than_their_neighbourhood() {
    let files = [
        ("t/lib/a.so", noise(100_000)),
        ("t/big.bin", noise(8 << 20)),
        ("t/lib/b.so", b"small".to_vec()),
        ("t/rest.bin", noise(4 << 20)),
    ];
    let server = serve(zip_of(&files, honest));
    let home = tempfile::tempdir().unwrap();
    let (taken, bytes) = fetch(&server, home.path());
    assert_eq!(taken.unwrap().len(), 2);
    assert_eq!(fs::read(home.path().join("out/a.so")).unwrap(), files[0].1);
    assert_eq!(fs::read(home.path().join("out/b.so")).unwrap(), b"small");
    assert!(bytes < 3 << 20, "{bytes} bytes of 12 MB");
    assert_eq!(n_files(home.path().join("partial")), 0);
}

#[test]
fn members_that_are_there_are_not_fetched_again() {
    let files = [
        ("t/lib/a.so", noise(6 << 20)),
        ("t/rest.bin", noise(3 << 20)),
        ("t/lib/b.so", noise(10)),
    ];
    let server = serve(zip_of(&files, honest));
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("out")).unwrap();
    fs::write(home.path().join("out/a.so"), &files[0].1).unwrap();
    let (taken, bytes) = fetch(&server, home.path());
    assert_eq!(taken.unwrap().len(), 2);
    assert!(bytes < 4 << 20, "{bytes}");
}

#[test]
fn a_member_of_another_hash_is_refused_removed_and_named() {
    let lie = |name: &str, bytes: &[u8]| honest(name, &[bytes, b"!"].concat());
    let server = serve(zip_of(&[("t/lib/a.so", b"abc".to_vec())], lie));
    let home = tempfile::tempdir().unwrap();
    let error = refusal(&server, home.path());
    assert!(error.contains("t/lib/a.so of t==1"), "{error}");
    assert!(error.contains("its RECORD says"), "{error}");
    assert_eq!(n_files(home.path().join("out")), 0);
    assert_eq!(n_files(home.path().join("partial")), 0);
}

#[test]
fn a_member_that_record_does_not_list_is_refused() {
    let files = [("t/lib/a.so", b"abc".to_vec())];
    let server = serve(zip_of(&files, |_, _| String::new()));
    let home = tempfile::tempdir().unwrap();
    let error = refusal(&server, home.path());
    assert!(error.contains("not in the wheel's RECORD"), "{error}");
}

#[test]
fn a_name_that_leads_elsewhere_is_not_taken() {
    let files = [("t/lib/../../../a.so", b"abc".to_vec())];
    let server = serve(zip_of(&files, honest));
    let home = tempfile::tempdir().unwrap();
    let taken = fetch(&server, home.path()).0.unwrap();
    assert!(taken.is_empty(), "{taken:?}");
}

#[test]
fn reads_record_lines() {
    let text = "a/b.h,sha256=xyz,12\n\"a,\"\"b\"\".h\",sha256=q,3\nt-1.dist-info/RECORD,,\n";
    let record = parse_record(text).unwrap();
    let plain = &record["a/b.h"];
    assert_eq!(plain.sha256.as_deref(), Some("xyz"));
    assert_eq!(plain.size, Some(12));
    assert_eq!(record["a,\"b\".h"].size, Some(3));
    assert_eq!(record[RECORD].sha256, None);
    let error = parse_record("a/b.h,,12\n").unwrap_err().to_string();
    assert!(error.contains("no sha256 for a/b.h"), "{error}");
    assert!(parse_record("nonsense\n").is_err());
}
