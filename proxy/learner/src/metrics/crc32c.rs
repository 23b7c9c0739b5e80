//! CRC-32C (Castagnoli, RFC 3720 B.4), with the mask of TFRecord files.

/// The polynomial, with its bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// The constant that the mask adds, because the CRC of data that contains CRCs is weak.
const MASK_DELTA: u32 = 0xa282_ead8;

/// The CRCs of all single bytes.
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
mod tests {
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
