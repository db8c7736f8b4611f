//! Bytes as people write them down: hashes and random names.

/// Two lower-case hexadecimal digits a byte.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
