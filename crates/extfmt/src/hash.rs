//! Directory hashes: legacy, half MD4 and TEA, each over signed or unsigned bytes.
//!
//! The result is a 32-bit major hash, whose lowest bit is 0 (in the tree it marks hashes that
//! continue in the next block), and a minor hash, which orders equal majors for readers.

/// `s_def_hash_version`, `hash_version` of a root.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum HashVersion {
    /// Legacy, signed bytes.
    Legacy,
    /// Half MD4, signed bytes.
    HalfMd4,
    /// TEA, signed bytes.
    Tea,
    /// Legacy, unsigned bytes.
    LegacyUnsigned,
    /// Half MD4, unsigned bytes.
    HalfMd4Unsigned,
    /// TEA, unsigned bytes.
    TeaUnsigned,
    /// SipHash with the directory's key (encrypted and casefolded): recognized, not computed.
    SipHash,
}

/// Major and minor hash of a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct NameHash {
    /// The sort key of the tree; even.
    pub major: u32,
    /// The order of names with equal major hash.
    pub minor: u32,
}

/// The major hash that marks the end of a listing; no name has it.
pub const HASH_EOF: u32 = 0x7FFF_FFFF << 1;

impl HashVersion {
    /// The version of an on-disk code. With 0 to 2, `s_flags` has whether bytes are `unsigned`; 3 to
    /// 5 are always unsigned.
    pub fn from_disk(code: u8, unsigned: bool) -> Option<Self> {
        Some(match (code, unsigned) {
            (0, false) => Self::Legacy,
            (1, false) => Self::HalfMd4,
            (2, false) => Self::Tea,
            (0, true) | (3, _) => Self::LegacyUnsigned,
            (1, true) | (4, _) => Self::HalfMd4Unsigned,
            (2, true) | (5, _) => Self::TeaUnsigned,
            (6, _) => Self::SipHash,
            _ => return None,
        })
    }

    /// The code for a root: 0 to 2 (signedness is in the superblock), or 6.
    pub fn to_disk(self) -> u8 {
        match self {
            Self::Legacy | Self::LegacyUnsigned => 0,
            Self::HalfMd4 | Self::HalfMd4Unsigned => 1,
            Self::Tea | Self::TeaUnsigned => 2,
            Self::SipHash => 6,
        }
    }

    /// The hash of a name. `seed` is the volume's; all zeroes mean the algorithm's default. `None` for
    /// SipHash, whose key is not on disk.
    pub fn hash(self, name: &[u8], seed: [u32; 4]) -> Option<NameHash> {
        let signed = |byte: u8| byte as i8 as u32;
        let (major, minor) = match self {
            Self::Legacy => (legacy(name, signed), 0),
            Self::LegacyUnsigned => (legacy(name, u32::from), 0),
            Self::HalfMd4 => second_and_third(digest(name, seed, signed, half_md4)),
            Self::HalfMd4Unsigned => second_and_third(digest(name, seed, u32::from, half_md4)),
            Self::Tea => first_and_second(digest(name, seed, signed, tea)),
            Self::TeaUnsigned => first_and_second(digest(name, seed, u32::from, tea)),
            Self::SipHash => return None,
        };
        let major = match major & !1 {
            HASH_EOF => HASH_EOF.wrapping_sub(2),
            major => major,
        };
        Some(NameHash { major, minor })
    }
}

fn first_and_second([first, second, ..]: [u32; 4]) -> (u32, u32) {
    (first, second)
}

fn second_and_third([_, second, third, _]: [u32; 4]) -> (u32, u32) {
    (second, third)
}

fn legacy(name: &[u8], extend: impl Fn(u8) -> u32) -> u32 {
    let (mut last, mut before) = (0x12A3_FE2Du32, 0x37AB_E8F9u32);
    for &byte in name {
        let mixed = before.wrapping_add(last ^ extend(byte).wrapping_mul(7_152_373));
        before = last;
        last = if mixed >> 31 == 1 {
            mixed.wrapping_sub(0x7FFF_FFFF)
        } else {
            mixed
        };
    }
    last << 1
}

/// Applies a transformation of the state to the name in pieces of `WORDS` 32-bit words.
fn digest<const WORDS: usize>(
    name: &[u8],
    seed: [u32; 4],
    extend: impl Fn(u8) -> u32,
    transform: impl Fn(&mut [u32; 4], &[u32; WORDS]),
) -> [u32; 4] {
    const MD4_START: [u32; 4] = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476];
    let mut state = if seed == [0; 4] { MD4_START } else { seed };
    let mut rest = name;
    while !rest.is_empty() {
        transform(&mut state, &words(rest, &extend));
        rest = rest.get(WORDS.saturating_mul(4)..).unwrap_or_default();
    }
    state
}

/// The first bytes of `rest` as big-endian words, padded with bytes that hold the length of
/// `rest`.
fn words<const WORDS: usize>(rest: &[u8], extend: impl Fn(u8) -> u32) -> [u32; WORDS] {
    let pad = u32::from_ne_bytes([rest.len() as u8; 4]);
    let mut words = [pad; WORDS];
    for (word, bytes) in words.iter_mut().zip(rest.chunks(4)) {
        for &byte in bytes {
            *word = (*word << 8).wrapping_add(extend(byte));
        }
    }
    words
}

/// Three rounds of eight steps of MD4 (RFC 1320) over half a block.
fn half_md4(state: &mut [u32; 4], input: &[u32; 8]) {
    let mut next = *state;
    half_md4_round(
        &mut next,
        [0, 1, 2, 3, 4, 5, 6, 7].map(|at| input[at]),
        [3, 7, 11, 19],
        |x, y, z| x & y | !x & z,
    );
    half_md4_round(
        &mut next,
        [1, 3, 5, 7, 0, 2, 4, 6].map(|at| input[at].wrapping_add(0x5A82_7999)),
        [3, 5, 9, 13],
        |x, y, z| x & y | x & z | y & z,
    );
    half_md4_round(
        &mut next,
        [3, 7, 2, 6, 1, 5, 0, 4].map(|at| input[at].wrapping_add(0x6ED9_EBA1)),
        [3, 9, 11, 15],
        |x, y, z| x ^ y ^ z,
    );
    for (word, add) in state.iter_mut().zip(next) {
        *word = word.wrapping_add(add);
    }
}

/// Eight steps. Generic over the function, so that it is inlined: a hash is computed for each name of a leaf
/// that is split.
#[inline]
fn half_md4_round(
    state: &mut [u32; 4],
    input: [u32; 8],
    shifts: [u32; 4],
    mix: impl Fn(u32, u32, u32) -> u32,
) {
    let [mut a, mut b, mut c, mut d] = *state;
    for (step, word) in input.into_iter().enumerate() {
        let sum = a.wrapping_add(mix(b, c, d)).wrapping_add(word);
        (a, b, c, d) = (d, sum.rotate_left(shifts[step % 4]), b, c);
    }
    *state = [a, b, c, d];
}

/// Sixteen rounds of the Tiny Encryption Algorithm, with the name as key and the state as text.
fn tea(state: &mut [u32; 4], key: &[u32; 4]) {
    let (mut v0, mut v1, mut sum) = (state[0], state[1], 0u32);
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9E37_79B9);
        v0 = v0.wrapping_add(tea_mix(v1, sum, key[0], key[1]));
        v1 = v1.wrapping_add(tea_mix(v0, sum, key[2], key[3]));
    }
    state[0] = state[0].wrapping_add(v0);
    state[1] = state[1].wrapping_add(v1);
}

fn tea_mix(v: u32, sum: u32, k0: u32, k1: u32) -> u32 {
    (v << 4).wrapping_add(k0) ^ v.wrapping_add(sum) ^ (v >> 5).wrapping_add(k1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: [u8; 16] = [
        0xB7, 0xAB, 0x8C, 0x19, 0x2C, 0x9A, 0x4F, 0xD6, 0x9D, 0x3C, 0x01, 0x23, 0x45, 0x67, 0x89,
        0xAB,
    ];

    const LONG: [u8; 255] = [b'x'; 255];

    const NAMES: [&[u8]; 7] = [
        b"a",
        b"0123456",
        b"a name that is longer than thirty-two bytes",
        &LONG,
        "\u{e9}t\u{e9} \u{fc}ber".as_bytes(),
        b"a-name-of-exactly-32-bytes------",
        "\u{65e5}\u{672c}\u{8a9e}\u{306e}\u{30d5}\u{30a1}\u{30a4}\u{30eb}\u{540d}.txt".as_bytes(),
    ];

    /// Version, whether a seed is used, and the major and minor hash of each name.
    type Vector = (u8, bool, [(u32, u32); 7]);

    /// From `debugfs -R 'dx_hash -h VERSION [-s SEED] NAME'`, e2fsprogs 1.47.0.
    const VECTORS: &[Vector] = &[
        (
            0,
            false,
            [
                (0xe74b53e2, 0x0),
                (0xd0a053ae, 0x0),
                (0x6518af46, 0x0),
                (0x30557da6, 0x0),
                (0xa8d25b2e, 0x0),
                (0x14a0cdd4, 0x0),
                (0xac85d92e, 0x0),
            ],
        ),
        (
            0,
            true,
            [
                (0xe74b53e2, 0x0),
                (0xd0a053ae, 0x0),
                (0x6518af46, 0x0),
                (0x30557da6, 0x0),
                (0xa8d25b2e, 0x0),
                (0x14a0cdd4, 0x0),
                (0xac85d92e, 0x0),
            ],
        ),
        (
            1,
            false,
            [
                (0xd5fa7d7a, 0xacb48187),
                (0x23e391d0, 0xe3793a77),
                (0x286535ea, 0x81fc0aa0),
                (0x2aa7169e, 0x655f9d9c),
                (0x63309d98, 0x6d22776),
                (0x5eba304, 0x3855c9ae),
                (0x498cd79e, 0x560289f3),
            ],
        ),
        (
            1,
            true,
            [
                (0xd7071138, 0xaaa11394),
                (0x776c8a8, 0x56d17468),
                (0x7eca33f4, 0xba46708f),
                (0x3a528cde, 0xf66bde54),
                (0x5f87392a, 0x918c962b),
                (0x6def17a0, 0x8037e299),
                (0xcbc4e69a, 0x84adcaa7),
            ],
        ),
        (
            2,
            false,
            [
                (0x6d0ea4c0, 0xc18922df),
                (0x81932e72, 0xc4bf959d),
                (0x8331a6be, 0x21d517e4),
                (0x6c4c00ee, 0xeafdb6b),
                (0xcf25ab68, 0xb994a54d),
                (0xa0984186, 0xe2b15c2f),
                (0x902b0c26, 0xe6fa38bf),
            ],
        ),
        (
            2,
            true,
            [
                (0x93d9be42, 0x9b4e2ebd),
                (0xde045dba, 0xeba76edf),
                (0x527bf2a2, 0x5a0bf886),
                (0x408d33de, 0x22c2f918),
                (0x57faf3a2, 0xf08f48c),
                (0xa12179a4, 0xfe9072b5),
                (0xf233c0e4, 0x2a20087d),
            ],
        ),
        (
            3,
            false,
            [
                (0xe74b53e2, 0x0),
                (0xd0a053ae, 0x0),
                (0x6518af46, 0x0),
                (0x30557da6, 0x0),
                (0xaf2cba6e, 0x0),
                (0x14a0cdd4, 0x0),
                (0xe4053258, 0x0),
            ],
        ),
        (
            3,
            true,
            [
                (0xe74b53e2, 0x0),
                (0xd0a053ae, 0x0),
                (0x6518af46, 0x0),
                (0x30557da6, 0x0),
                (0xaf2cba6e, 0x0),
                (0x14a0cdd4, 0x0),
                (0xe4053258, 0x0),
            ],
        ),
        (
            4,
            false,
            [
                (0xd5fa7d7a, 0xacb48187),
                (0x23e391d0, 0xe3793a77),
                (0x286535ea, 0x81fc0aa0),
                (0x2aa7169e, 0x655f9d9c),
                (0x92b48954, 0x28544b30),
                (0x5eba304, 0x3855c9ae),
                (0x1b34948a, 0xd4273000),
            ],
        ),
        (
            4,
            true,
            [
                (0xd7071138, 0xaaa11394),
                (0x776c8a8, 0x56d17468),
                (0x7eca33f4, 0xba46708f),
                (0x3a528cde, 0xf66bde54),
                (0x22a57938, 0xb7249867),
                (0x6def17a0, 0x8037e299),
                (0x76a59b7c, 0xd29b13cb),
            ],
        ),
        (
            5,
            false,
            [
                (0x6d0ea4c0, 0xc18922df),
                (0x81932e72, 0xc4bf959d),
                (0x8331a6be, 0x21d517e4),
                (0x6c4c00ee, 0xeafdb6b),
                (0x30812b9a, 0xb63dba3c),
                (0xa0984186, 0xe2b15c2f),
                (0x5fa5f4f4, 0xc6000116),
            ],
        ),
        (
            5,
            true,
            [
                (0x93d9be42, 0x9b4e2ebd),
                (0xde045dba, 0xeba76edf),
                (0x527bf2a2, 0x5a0bf886),
                (0x408d33de, 0x22c2f918),
                (0x6ff10e4, 0x27986eb2),
                (0xa12179a4, 0xfe9072b5),
                (0x71e4f14, 0x763e8349),
            ],
        ),
    ];

    #[test]
    fn as_debugfs_computes_them() {
        let mut seed = [0u32; 4];
        for (word, bytes) in seed.iter_mut().zip(SEED.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        for &(code, seeded, expected) in VECTORS {
            let version = HashVersion::from_disk(code, false).unwrap();
            let seed = if seeded { seed } else { [0; 4] };
            for (name, (major, minor)) in NAMES.into_iter().zip(expected) {
                let hash = version.hash(name, seed).unwrap();
                assert_eq!(
                    hash,
                    NameHash { major, minor },
                    "{version:?} {seeded} {name:?}"
                );
            }
        }
    }

    #[test]
    fn codes() {
        for code in 0..=6 {
            let version = HashVersion::from_disk(code, false).unwrap();
            let unsigned = matches!(code, 3..=5);
            assert_eq!(
                HashVersion::from_disk(version.to_disk(), unsigned),
                Some(version)
            );
        }
        assert_eq!(HashVersion::from_disk(7, false), None);
        assert_eq!(HashVersion::SipHash.hash(b"a", [0; 4]), None);
        assert_eq!(
            HashVersion::from_disk(1, true),
            Some(HashVersion::HalfMd4Unsigned)
        );
    }
}
