//! Files are read back here by what the formats say, with code that shares nothing with the writer's but the sum, which
//! has the RFC's own checks; TensorBoard 2.21 read the same file alike when this was written.

use std::fs;

use super::*;

/// A message's fields: number, and what stands there as its bytes.
fn fields(mut data: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut fields = Vec::new();
    while !data.is_empty() {
        let (key, rest) = read_varint(data);
        let (value, rest) = match key & 7 {
            0 => {
                let (value, rest) = read_varint(rest);
                (value.to_be_bytes().to_vec(), rest)
            }
            1 => (rest[..8].to_vec(), &rest[8..]),
            2 => {
                let (n, rest) = read_varint(rest);
                let n = usize::try_from(n).unwrap();
                (rest[..n].to_vec(), &rest[n..])
            }
            5 => (rest[..4].to_vec(), &rest[4..]),
            other => panic!("wire type {other}"),
        };
        fields.push((key >> 3, value));
        data = rest;
    }
    fields
}

fn read_varint(data: &[u8]) -> (u64, &[u8]) {
    let mut value = 0;
    for (at, byte) in data.iter().enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return (value, &data[at + 1..]);
        }
    }
    panic!("a varint without an end");
}

/// The data of each record, its sums checked.
fn records(mut file: &[u8]) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    while !file.is_empty() {
        let n = u64::from_le_bytes(file[..8].try_into().unwrap());
        let n = usize::try_from(n).unwrap();
        assert_eq!(word(&file[8..12]), masked(&file[..8]));
        let (data, end) = (&file[12..12 + n], 16 + n);
        assert_eq!(word(&file[12 + n..end]), masked(data));
        records.push(data.to_vec());
        file = &file[end..];
    }
    records
}

fn time(field: &(u64, Vec<u8>)) -> f64 {
    assert_eq!(field.0, 1);
    f64::from_le_bytes(field.1[..].try_into().unwrap())
}

#[test]
fn a_file_reads_back_by_the_formats() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("main/0badcafe");
    let mut file = EventFile::create(&run, 1_700_000_000_500).unwrap();
    let scalars = [("loss/total", 0.25), ("learning_rate", 5e-4)];
    file.scalars(300, 1_700_000_001_000, &scalars).unwrap();
    file.scalars(301, 1_700_000_002_000, &[("loss/total", f64::NAN)])
        .unwrap();
    let mut names = fs::read_dir(&run).unwrap();
    let path = names.next().unwrap().unwrap().path();
    let name = path.file_name().unwrap().to_str().unwrap();
    let is_so = name.starts_with("events.out.tfevents.1700000000.");
    assert!(is_so, "{name}");
    let records = records(&fs::read(&path).unwrap());
    assert_eq!(records.len(), 3);

    let first = fields(&records[0]);
    assert!((time(&first[0]) - 1_700_000_000.5).abs() < 1e-6);
    assert_eq!(first[1], (3, b"brain.Event:2".to_vec()));

    let event = fields(&records[1]);
    assert!((time(&event[0]) - 1_700_000_001.0).abs() < 1e-6);
    assert_eq!(event[1], (2, 300u64.to_be_bytes().to_vec()));
    assert_eq!(event[2].0, 5);
    let values: Vec<(String, f32)> = fields(&event[2].1)
        .into_iter()
        .map(|(number, value)| {
            assert_eq!(number, 1);
            let value = fields(&value);
            assert_eq!((value[0].0, value[1].0), (1, 2));
            let tag = String::from_utf8(value[0].1.clone()).unwrap();
            (tag, f32::from_le_bytes(value[1].1[..].try_into().unwrap()))
        })
        .collect();
    let expected = [
        ("loss/total".to_owned(), 0.25),
        ("learning_rate".to_owned(), 5e-4),
    ];
    assert_eq!(values, expected);
}

#[test]
fn two_files_of_one_run_stand_beside_each_other() {
    let dir = tempfile::tempdir().unwrap();
    drop(EventFile::create(dir.path(), 1_000).unwrap());
    drop(EventFile::create(dir.path(), 2_000).unwrap());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}
