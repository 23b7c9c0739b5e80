//! Blocks of quantised numbers, as ggml stores them.
//!
//! A block has a scale, often a minimum, and a few bits for each number; the blocks of 256 (`K`) have a scale of a
//! few bits more for every 16 or 32 numbers. Layouts: `dequantize_row_*` in
//! <https://github.com/ggml-org/ggml/blob/master/src/ggml-quants.c>.

use half::{bf16, f16};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockFormat {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
}

impl BlockFormat {
    /// The format by ggml's number; `None` for a format that cannot be read.
    pub(super) fn from_ggml(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Q4_0,
            3 => Self::Q4_1,
            6 => Self::Q5_0,
            7 => Self::Q5_1,
            8 => Self::Q8_0,
            10 => Self::Q2K,
            11 => Self::Q3K,
            12 => Self::Q4K,
            13 => Self::Q5K,
            14 => Self::Q6K,
            30 => Self::BF16,
            _ => return None,
        })
    }

    /// Numbers in a block, and its bytes.
    pub(super) fn block(self) -> (usize, usize) {
        match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::BF16 => (1, 2),
            Self::Q4_0 => (32, 2 + 16),
            Self::Q4_1 => (32, 4 + 16),
            Self::Q5_0 => (32, 2 + 4 + 16),
            Self::Q5_1 => (32, 4 + 4 + 16),
            Self::Q8_0 => (32, 2 + 32),
            Self::Q2K => (256, 16 + 64 + 4),
            Self::Q3K => (256, 32 + 64 + 12 + 2),
            Self::Q4K => (256, 4 + 12 + 128),
            Self::Q5K => (256, 4 + 12 + 32 + 128),
            Self::Q6K => (256, 128 + 64 + 16 + 2),
        }
    }

    pub(super) fn dequantise(self, bytes: &[u8]) -> Vec<f32> {
        let (n_numbers, n_bytes) = self.block();
        let mut numbers = Vec::with_capacity(bytes.len() / n_bytes * n_numbers);
        for block in bytes.chunks_exact(n_bytes) {
            let (scale, min) = self.scale_and_min(block);
            numbers.extend((0..n_numbers).map(|i| self.number(block, scale, min, i)));
        }
        numbers
    }

    /// The scale and the minimum of a block. The minimum is 0 in formats without one.
    fn scale_and_min(self, block: &[u8]) -> (f32, f32) {
        let at = |start: usize| f16::from_le_bytes([block[start], block[start + 1]]).to_f32();
        match self {
            Self::F32 | Self::F16 | Self::BF16 => (1.0, 0.0),
            Self::Q4_0 | Self::Q5_0 | Self::Q8_0 => (at(0), 0.0),
            Self::Q4_1 | Self::Q5_1 | Self::Q4K | Self::Q5K => (at(0), at(2)),
            Self::Q2K => (at(80), at(82)),
            Self::Q3K => (at(108), 0.0),
            Self::Q6K => (at(208), 0.0),
        }
    }

    fn number(self, block: &[u8], scale: f32, min: f32, i: usize) -> f32 {
        // The low halves of 16 bytes hold the first 16 of 32 numbers. The low halves of 32 bytes hold the first 32 of
        // 64.
        let of_32 = |start: usize| nibble(block[start + i % 16], i / 16);
        let of_64 = |start: usize| nibble(block[start + i / 64 * 32 + i % 32], i / 32 % 2);
        // A bit for each of 32 numbers. In 32 bytes, a bit for each of 256.
        let bit = |start: usize| (block[start + i / 8] >> (i % 8)) & 1;
        let bit_of_256 = |start: usize| (block[start + i % 32] >> (i / 32)) & 1;
        // Two bits for each of 128 numbers, in 32 bytes.
        let pair = |start: usize| (block[start + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3;
        match self {
            Self::F32 => f32::from_le_bytes([block[0], block[1], block[2], block[3]]),
            Self::F16 => f16::from_le_bytes([block[0], block[1]]).to_f32(),
            Self::BF16 => bf16::from_le_bytes([block[0], block[1]]).to_f32(),
            Self::Q4_0 => (f32::from(of_32(2)) - 8.0) * scale,
            Self::Q4_1 => f32::from(of_32(4)) * scale + min,
            Self::Q5_0 => (f32::from(of_32(6) | bit(2) << 4) - 16.0) * scale,
            Self::Q5_1 => f32::from(of_32(8) | bit(4) << 4) * scale + min,
            Self::Q8_0 => f32::from(block[2 + i].cast_signed()) * scale,
            Self::Q2K => {
                let both = block[i / 16];
                let (scale, min) = (scale * f32::from(both & 15), min * f32::from(both >> 4));
                scale * f32::from(pair(16)) - min
            }
            Self::Q3K => {
                let scale = scale * (f32::from(scale_of_q3k(&block[96..108], i / 16)) - 32.0);
                scale * (f32::from(pair(32) | bit_of_256(0) << 2) - 4.0)
            }
            Self::Q4K | Self::Q5K => {
                let (scale_6, min_6) = scale_and_min_of_k(&block[4..16], i / 32);
                let number = match self {
                    Self::Q4K => of_64(16),
                    _ => of_64(48) | bit_of_256(16) << 4,
                };
                scale * f32::from(scale_6) * f32::from(number) - min * f32::from(min_6)
            }
            Self::Q6K => {
                let low = block[i / 128 * 64 + i % 64];
                let number = nibble(low, i / 64 % 2) | pair(128) << 4;
                let own = f32::from(block[192 + i / 16].cast_signed());
                scale * own * (f32::from(number) - 32.0)
            }
        }
    }
}

fn nibble(byte: u8, half: usize) -> u8 {
    if half == 0 { byte & 15 } else { byte >> 4 }
}

/// One of 16 scales of 6 bits: 8 bytes hold four bits of each, 4 bytes hold two.
fn scale_of_q3k(packed: &[u8], i: usize) -> u8 {
    let low = nibble(packed[i % 8], i / 8);
    let high = (packed[8 + i % 4] >> (i / 4 * 2)) & 3;
    low | high << 4
}

/// Of 8 scales and 8 minima of 6 bits: the first four of each whole, then halves, whose upper two bits stand above
/// the first ones.
fn scale_and_min_of_k(packed: &[u8], i: usize) -> (u8, u8) {
    if i < 4 {
        (packed[i] & 63, packed[i + 4] & 63)
    } else {
        let low = packed[i + 4];
        (
            (low & 15) | (packed[i - 4] >> 6) << 4,
            (low >> 4) | (packed[i] >> 6) << 4,
        )
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    fn bytes(format: BlockFormat, n_blocks: usize) -> Vec<u8> {
        let (_, n_bytes) = format.block();
        let mut state = 0x9E37_79B9_u32;
        let mut bytes: Vec<u8> = (0..n_blocks * n_bytes)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state.to_be_bytes()[0]
            })
            .collect();
        let small: &[usize] = match format {
            BlockFormat::F32 => &[3],
            BlockFormat::F16
            | BlockFormat::BF16
            | BlockFormat::Q4_0
            | BlockFormat::Q5_0
            | BlockFormat::Q8_0 => &[1],
            BlockFormat::Q4_1 | BlockFormat::Q5_1 | BlockFormat::Q4K | BlockFormat::Q5K => &[1, 3],
            BlockFormat::Q2K => &[81, 83],
            BlockFormat::Q3K => &[109],
            BlockFormat::Q6K => &[209],
        };
        for block in bytes.chunks_exact_mut(n_bytes) {
            for at in small {
                // Exponents of numbers below 1, either sign.
                block[*at] = (block[*at] & 0x83) | 0x28;
            }
        }
        bytes
    }

    /// What candle-core 0.11.1 made of the same bytes (`qtensor_from_ggml`, `dequantize`), as a hash of the f32s.
    const BY_CANDLE: [(BlockFormat, &str); 13] = [
        (BlockFormat::F32, "bf8177a98a62c995"),
        (BlockFormat::F16, "04553b2581ca737d"),
        (BlockFormat::BF16, "0bd12a8a715fcc8e"),
        (BlockFormat::Q4_0, "0ec58234c287cf91"),
        (BlockFormat::Q4_1, "845f72951f1613ce"),
        (BlockFormat::Q5_0, "61a1d2a3734decde"),
        (BlockFormat::Q5_1, "1afa8e31d8d9755e"),
        (BlockFormat::Q8_0, "9f120e4d0b9fa537"),
        (BlockFormat::Q2K, "ca331f7244952725"),
        (BlockFormat::Q3K, "641188b977e984da"),
        (BlockFormat::Q4K, "4eb457b1d93081dc"),
        (BlockFormat::Q5K, "9fce9b769087aab1"),
        (BlockFormat::Q6K, "32c29d4be1292d2a"),
    ];

    #[test]
    fn every_format_gives_what_candle_gave() {
        for (format, expected) in BY_CANDLE {
            let numbers = format.dequantise(&bytes(format, 64));
            let (n_numbers, _) = format.block();
            assert_eq!(numbers.len(), 64 * n_numbers, "{format:?}");
            let hash = numbers.iter().fold(Sha256::new(), |hash, number| {
                hash.chain_update(number.to_le_bytes())
            });
            let hash = crate::digest::hex(hash);
            assert_eq!(hash[..16], *expected, "{format:?}");
        }
    }
}
