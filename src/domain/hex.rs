//! Bytes in hexadecimal.

use data_encoding::HEXLOWER;

/// `0a1f`: two lowercase digits a byte.
pub fn hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}
