//! Bytes in hexadecimal.

/// `0a1f`: two lowercase digits a byte.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
