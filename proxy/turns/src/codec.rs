//! Encoding of values on disk: one zstd frame each.

use std::{cell::RefCell, io};

use zstd::{
    bulk::{Compressor, Decompressor},
    zstd_safe::get_frame_content_size,
};

use crate::work;

/// Level of zstd compression. Records are small. The default level, 3, takes longer and does not make them noticeably
/// smaller.
const LEVEL: i32 = 1;
/// The largest value that is stored. A value that claims to be larger is damaged.
const MAX_VALUE: usize = 128 << 20;

/// The beginning of a zstd dictionary: the frequency tables of bytes and repetitions. With it, a record does not
/// contain such tables of its own, which would have to be decoded first. They are from `zstd --train` on records in
/// English, Chinese and code. They are part of the format.
const TABLES: &[u8] = &[
    55, 164, 48, 236, 1, 0, 0, 0, 77, 16, 136, 100, 148, 54, 0, 0, 65, 0, 237, 55, 13, 0, 0, 0, 64,
    53, 234, 129, 109, 25, 245, 175, 61, 59, 130, 31, 14, 59, 226, 147, 127, 53, 164, 27, 49, 202,
    113, 53, 143, 110, 181, 17, 68, 52, 66, 234, 11, 54, 75, 73, 18, 145, 230, 36, 122, 196, 42,
    142, 219, 173, 184, 178, 187, 187, 187, 13, 114, 251, 151, 226, 136, 0, 64, 0, 71, 3, 163, 2,
    24, 20, 38, 19, 13, 200, 146, 106, 27, 0, 0, 4, 192, 207, 142, 7, 196, 3, 8, 163, 67, 244, 56,
    64, 22, 133, 197, 0, 48, 136, 99, 0, 0, 34, 32, 2, 32, 129, 128, 0, 0, 152, 146, 0, 0, 0, 0, 0,
    244, 167, 66, 196, 165, 131, 67, 194, 200, 232, 14, 135, 98, 24, 134, 211, 24, 197, 65, 218,
    144, 0, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 8, 0, 0, 0,
];
/// The end of the dictionary: text that records have in common. zstd treats it as preceding each value, so that
/// repeating it takes almost no space.
const COMMON: &[u8] = br##"0
{"key":1,"meta":{"kind":"main","chain":"0","reply_id":"chatcmpl-0","finish_reason":"stop","usage":{"prompt_tokens":1,"completion_tokens":1,"cached_tokens":0},"end":{"how":"complete"},"started_ms":17,"first_byte_ms":17,"ended_ms":17},"parent":0,"old":[[0,1,0]],"new":[[1,2,1]],"reply":2,"is_answer":true,"setup":"#0","tools":"#0"}
{"role":"user","content":"0"}
{"role":"assistant","content":"0"}
"##;

// zstd's tables are kept between calls, because creating them takes longer than encoding a record.
thread_local! {
    static COMPRESSOR: RefCell<io::Result<Compressor<'static>>> =
        RefCell::new(Compressor::with_dictionary(LEVEL, &[TABLES, COMMON].concat()));
    static DECOMPRESSOR: RefCell<io::Result<Decompressor<'static>>> =
        RefCell::new(Decompressor::with_dictionary(&[TABLES, COMMON].concat()));
}

pub(crate) fn pack(bytes: &[u8]) -> Result<Vec<u8>, String> {
    work::count(bytes.len());
    if bytes.len() > MAX_VALUE {
        return Err(format!("{} bytes are more than {MAX_VALUE}", bytes.len()));
    }
    COMPRESSOR.with_borrow_mut(|compressor| {
        let compressor = compressor.as_mut().map_err(|error| error.to_string())?;
        let packed = compressor.compress(bytes);
        packed.map_err(|error| error.to_string())
    })
}

pub(crate) fn unpack(packed: &[u8]) -> Result<Vec<u8>, String> {
    let claimed = get_frame_content_size(packed).ok().flatten();
    let in_memory = claimed.and_then(|n_bytes| usize::try_from(n_bytes).ok());
    let n_bytes = in_memory.ok_or("it is no zstd frame with a length")?;
    if n_bytes > MAX_VALUE {
        return Err(format!("it claims {n_bytes} bytes, over {MAX_VALUE}"));
    }
    work::count(n_bytes);
    DECOMPRESSOR.with_borrow_mut(|decompressor| {
        let decompressor = decompressor.as_mut().map_err(|error| error.to_string())?;
        let bytes = decompressor.decompress(packed, n_bytes);
        bytes.map_err(|error| error.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_out_again() {
        let long = vec![7u8; 100_000];
        for bytes in [&b""[..], b"{\"a\":1}", &long] {
            let packed = pack(bytes).unwrap();
            assert_eq!(unpack(&packed).unwrap(), bytes);
        }
    }

    #[test]
    fn damage_is_said_and_never_a_panic() {
        let packed = pack(b"some text that is long enough").unwrap();
        for cut in 0..packed.len() {
            assert!(unpack(&packed[..cut]).is_err(), "cut at {cut}");
        }
        // This frame claims four gigabytes: eight bytes of length after its magic number.
        let bomb = [&packed[..4], &[0xe0], &[0xff; 8]].concat();
        assert!(unpack(&bomb).is_err());
    }
}
