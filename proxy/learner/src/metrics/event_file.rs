//! TensorBoard's event files: TFRecords of `tensorflow.Event` messages.
//!
//! A record is the length of its data as u64, the masked CRC-32C of those eight bytes as u32, the data, and the masked
//! CRC-32C of the data as u32, all little-endian
//! (<https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details>). Of the messages only the few
//! fields are written that scalars need (`tensorflow/core/util/event.proto`, `framework/summary.proto`):
//!
//! ```text
//! Event   { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; }
//! Summary { repeated Value value = 1; }    Value { string tag = 1; float simple_value = 2; }
//! ```
//!
//! CRC-32C (Castagnoli, RFC 3720 B.4), with the mask of TFRecord files.

#[cfg(test)]
mod tests;

use std::{
    fs::File,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use metaclaw_chat::make_private;

use crate::formulas::single;

const FILE_VERSION: &str = "brain.Event:2";
/// Wire types of protobuf: <https://protobuf.dev/programming-guides/encoding/#structure>.
const VARINT: u8 = 0;
const I64: u8 = 1;
const LEN: u8 = 2;
const I32: u8 = 5;

#[derive(Debug)]
pub(super) struct EventFile(File);

// === impl EventFile ===

impl EventFile {
    /// Begins a file in the folder of a run. Readers take a run's files in the order of their names.
    pub(super) fn create(run: &Path, now_ms: u64) -> io::Result<Self> {
        make_private(run)?;
        // The time as of other writers in whole seconds; two processes in one second have names of their own.
        let (seconds, pid) = (now_ms / 1_000, std::process::id());
        let name = format!("events.out.tfevents.{seconds:010}.metaclaw.{pid}.0");
        let file = File::options()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(run.join(name))?;
        let mut events = Self(file);
        let mut first = wall_time(now_ms);
        bytes(&mut first, 3, FILE_VERSION.as_bytes());
        events.add(&first)?;
        Ok(events)
    }

    pub(super) fn scalars(
        &mut self,
        step: u64,
        now_ms: u64,
        scalars: &[(impl AsRef<str>, f64)],
    ) -> io::Result<()> {
        let mut summary = Vec::new();
        for (tag, value) in scalars {
            let mut one = Vec::new();
            bytes(&mut one, 1, tag.as_ref().as_bytes());
            key(&mut one, 2, I32);
            one.extend(single(*value).to_le_bytes());
            bytes(&mut summary, 1, &one);
        }
        let mut event = wall_time(now_ms);
        key(&mut event, 2, VARINT);
        varint(&mut event, step);
        bytes(&mut event, 5, &summary);
        self.add(&event)
    }

    /// One record, in one write: a reader that looks meanwhile waits for the rest of it.
    fn add(&mut self, data: &[u8]) -> io::Result<()> {
        let length = (data.len() as u64).to_le_bytes();
        let mut record = Vec::with_capacity(data.len() + 16);
        record.extend(length);
        record.extend(masked(&length).to_le_bytes());
        record.extend(data);
        record.extend(masked(data).to_le_bytes());
        self.0.write_all(&record)
    }
}

fn wall_time(now_ms: u64) -> Vec<u8> {
    let mut event = Vec::new();
    key(&mut event, 1, I64);
    event.extend((now_ms as f64 / 1_000.0).to_le_bytes());
    event
}

fn key(to: &mut Vec<u8>, field: u8, wire_type: u8) {
    to.push(field << 3 | wire_type);
}

fn bytes(to: &mut Vec<u8>, field: u8, data: &[u8]) {
    key(to, field, LEN);
    varint(to, data.len() as u64);
    to.extend(data);
}

fn varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        let [low, ..] = value.to_le_bytes();
        to.push(low | 0x80);
        value >>= 7;
    }
    let [last, ..] = value.to_le_bytes();
    to.push(last);
}

/// The polynomial, with its bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// The constant that the mask adds, because the CRC of data that contains CRCs is weak.
const MASK_DELTA: u32 = 0xa282_ead8;

const TABLE: [u32; 256] = table();

/// Returns a CRC as TFRecord files store it: rotated right by 15 bits, plus a constant.
pub(super) fn masked(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(MASK_DELTA)
}

fn crc32c(bytes: &[u8]) -> u32 {
    let add = |crc: u32, byte: &u8| {
        let [low, ..] = (crc ^ u32::from(*byte)).to_le_bytes();
        (crc >> 8) ^ TABLE[usize::from(low)]
    };
    !bytes.iter().fold(!0, add)
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte: u32 = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte, 0);
        while bit < 8 {
            let carry = crc & 1;
            crc >>= 1;
            if carry == 1 {
                crc ^= POLYNOMIAL;
            }
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod crc32c_tests {
    use super::*;

    #[test]
    fn the_sums_of_the_rfc() {
        // The values are from RFC 3720 B.4, and the check value of CRC catalogues.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&ascending), 0x46dd_794e);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(b""), 0);
    }
}
