//! Encrypted names and symbolic link targets as shown without the key: the kernel's (fscrypt) no-key form.
//!
//! ```text
//! base64url, unpadded: | hash 4 | minor hash 4 | up to 149 stored bytes | SHA-256 of the rest, if any |
//! ```
//! Stored bytes may have any value, including `/` and NUL. The form is valid in a path and can be looked up.
//! A name with more bytes than the form holds is found by its hashes in the directory.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use zerocopy::FromBytes;
use zerocopy::little_endian::U16;

use crate::error::ensure;
use crate::hash::NameHash;
use crate::{Corrupt, Result};

/// The maximum number of stored bytes in the form itself.
const BYTES: usize = 149;
const HASHES: usize = 8;
const DIGEST: usize = 32;

/// The form of stored bytes; 2 to 252 characters.
pub fn show(hash: NameHash, stored: &[u8]) -> String {
    let (bytes, rest) = stored.split_at(stored.len().min(BYTES));
    let mut form = Vec::with_capacity(HASHES + BYTES + DIGEST);
    form.extend(hash.major.to_le_bytes());
    form.extend(hash.minor.to_le_bytes());
    form.extend(bytes);
    if !rest.is_empty() {
        form.extend(Sha256::digest(rest));
    }
    URL_SAFE_NO_PAD.encode(form)
}

/// A decoded form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shown {
    /// The hash of the name in its directory, or 0 if the directory has no hashes.
    pub hash: NameHash,
    bytes: Vec<u8>,
    rest: Option<[u8; DIGEST]>,
}

impl Shown {
    /// Decodes a form; `None` if the text is not one.
    pub fn read(form: &[u8]) -> Option<Shown> {
        let form = URL_SAFE_NO_PAD.decode(form).ok()?;
        let (hashes, bytes) = form.split_at_checked(HASHES)?;
        let (major, minor) = hashes.split_at(4);
        let number = |bytes: &[u8]| bytes.try_into().ok().map(u32::from_le_bytes);
        let hash = NameHash {
            major: number(major)?,
            minor: number(minor)?,
        };
        let (bytes, rest) = bytes.split_at(bytes.len().min(BYTES));
        let rest = match rest.len() {
            0 if !bytes.is_empty() => None,
            DIGEST => Some(rest.try_into().ok()?),
            _ => return None,
        };
        let bytes = bytes.to_vec();
        Some(Shown { hash, bytes, rest })
    }

    /// The stored bytes, if the form has all of them.
    pub fn stored(&self) -> Option<&[u8]> {
        self.rest.is_none().then_some(&self.bytes)
    }

    /// Whether it is the form of these bytes.
    pub fn is_of(&self, stored: &[u8]) -> bool {
        let (bytes, rest) = stored.split_at(stored.len().min(BYTES));
        let digest = (!rest.is_empty()).then(|| <[u8; DIGEST]>::from(Sha256::digest(rest)));
        bytes == self.bytes && digest == self.rest
    }
}

/// The stored bytes of an encrypted symbolic link's target, after their 16-bit length.
///
/// # Errors
/// If the length is 0, or more than the bytes that follow.
pub fn target(content: &[u8]) -> Result<&[u8]> {
    let cut = || Corrupt::new("the target of an encrypted symbolic link has no length");
    let (len, stored) = U16::read_from_prefix(content).map_err(|_| cut())?;
    let len = usize::from(len.get());
    ensure!(
        (1..=stored.len()).contains(&len),
        "the target of an encrypted symbolic link has {len} of {} bytes",
        stored.len()
    );
    Ok(&stored[..len])
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: NameHash = NameHash {
        major: 0x1234_5678,
        minor: 0x9abc_def0,
    };

    #[test]
    fn shown_names_can_be_parsed() {
        for len in [1, 16, 148, 149, 150, 255] {
            let stored: Vec<u8> = (0..len).map(|at| (at * 37 + len) as u8).collect();
            let form = show(HASH, &stored);
            assert!(
                form.len() <= 252 && !form.contains(['/', '\0', '=']),
                "{form}"
            );
            let shown = Shown::read(form.as_bytes()).expect("a form");
            assert_eq!(shown.hash, HASH);
            assert!(shown.is_of(&stored));
            assert_eq!(shown.stored(), (len <= 149).then_some(&stored[..]));
            let mut other = stored.clone();
            other[len - 1] ^= 1;
            assert!(!shown.is_of(&other));
            assert!(!shown.is_of(&stored[..len - 1]));
        }
    }

    #[test]
    fn invalid_forms_are_not_parsed() {
        let short = URL_SAFE_NO_PAD.encode([0; HASHES]);
        let between = URL_SAFE_NO_PAD.encode([0; HASHES + BYTES + DIGEST - 1]);
        for form in ["", "a", "name", "AA==", "with space", &short, &between] {
            assert_eq!(Shown::read(form.as_bytes()), None, "{form}");
        }
    }

    #[test]
    fn a_target_has_its_length_before_it() {
        assert_eq!(target(&[2, 0, 7, 8, 9]), Ok(&[7, 8][..]));
        for bad in [&[][..], &[1], &[0, 0, 1], &[3, 0, 1, 2]] {
            assert!(target(bad).is_err(), "{bad:?}");
        }
    }
}
