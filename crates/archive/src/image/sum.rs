//! Digests of blobs, as `sha256:` and 64 hexadecimal digits.

use sha2::{Digest, Sha256, Sha512};

use crate::error::{Error, Result};

/// A digest of a blob in the making.
#[derive(Clone, Debug)]
pub struct DigestSum(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl DigestSum {
    /// Begins one for a blob of this digest, such as `sha256:` and 64 digits.
    ///
    /// # Errors
    /// [`Error::Damaged`] for what is no digest of SHA-256 or SHA-512.
    pub fn new(digest: &str) -> Result<DigestSum> {
        let (algorithm, hex) = digest.split_once(':').unwrap_or_default();
        let is_hex = hex
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        match (algorithm, hex.len()) {
            ("sha256", 64) if is_hex => Ok(DigestSum(Kind::Sha256(Sha256::new()))),
            ("sha512", 128) if is_hex => Ok(DigestSum(Kind::Sha512(Sha512::new()))),
            _ => Err(Error::damaged(
                crate::error::shown(digest.as_bytes()),
                "is not a digest of SHA-256 or SHA-512",
            )),
        }
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Kind::Sha256(sum) => sum.update(bytes),
            Kind::Sha512(sum) => sum.update(bytes),
        }
    }

    /// Whether the bytes have the digest.
    ///
    /// # Errors
    /// [`Error::Damaged`] if they have another one.
    pub fn check(self, digest: &str) -> Result<()> {
        let bytes = match self.0 {
            Kind::Sha256(sum) => sum.finalize().to_vec(),
            Kind::Sha512(sum) => sum.finalize().to_vec(),
        };
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        if digest.ends_with(&hex) {
            return Ok(());
        }
        Err(Error::damaged(
            digest,
            format_args!("its content is damaged: it has the digest {hex}"),
        ))
    }
}
