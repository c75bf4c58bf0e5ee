//! Names without regard to case, as directories with the flag `+F` compare and hash them (feature
//! `casefold`, `s_encoding` 1: UTF-8, Unicode 12.1).
//!
//! The folded form of a name has the full case folding of each character, in canonical decomposition and
//! canonical order, without the default-ignorable code points. Names with the same folded form are the same
//! name, and a name's hash is that of its folded form. Beyond Unicode's own rules:
//!
//! - Canonical order does not reach over an ignorable code point, nor over one that Unicode 12.1 does not
//!   assign. Code points that are not assigned stand for themselves, whatever later versions say of them.
//! - A byte of 0x80 to 0xBF where a character should begin stands for itself. After a combining character,
//!   what e2fsprogs makes of it is not understood: such names are refused.
//! - A name that is not UTF-8 otherwise has no folded form. It is compared and hashed as it is. On a volume
//!   in strict mode, no such name is created. (`e2fsck` 1.47 computes no hash of such a name, takes that of
//!   the name before it, and so reports sound hashed directories.)
//!
//! Unicode's stability policies say that case folding and decomposition of assigned characters do not
//! change. So tables of a newer version serve, if they are applied only to what 12.1 assigns.
//!
//! Source: Unicode Standard 12.1, section 3.13, and UAX #15; the rules beyond them from the hashes that
//! `debugfs` 1.47 (`dx_hash -c`) computes for all code points and for random and malformed names.

use std::sync::LazyLock;

use regex_syntax::hir::{Class, HirKind};
use unicase::UniCase;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::canonical_combining_class;

use crate::Superblock;
use crate::features::Incompat;

/// `s_encoding`: UTF-8, Unicode 12.1.
pub const UTF8_12_1: u16 = 1;
/// `s_encoding_flags`: names that are not valid are refused.
pub const STRICT: u16 = 1;

/// The code points of a property, as ascending ranges.
struct Property(Vec<(char, char)>);

impl Property {
    fn new(class: &str) -> Self {
        let parsed = regex_syntax::parse(class).map(|hir| hir.into_kind());
        Self(match parsed {
            Ok(HirKind::Class(Class::Unicode(class))) => class
                .iter()
                .map(|range| (range.start(), range.end()))
                .collect(),
            // The test of this file would fail.
            _ => Vec::new(),
        })
    }

    fn has(&self, c: char) -> bool {
        let after = self.0.partition_point(|&(first, _)| first <= c);
        let before = after.checked_sub(1).and_then(|at| self.0.get(at));
        before.is_some_and(|&(_, last)| c <= last)
    }
}

static ASSIGNED: LazyLock<Property> = LazyLock::new(|| Property::new(r"\p{Age=12.1}"));
static IGNORABLE: LazyLock<Property> =
    LazyLock::new(|| Property::new(r"\p{Default_Ignorable_Code_Point}"));
/// Ignorable since Unicode 14.
const IGNORABLE_LATER: char = '\u{180F}';

/// How a volume folds names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaseFolding {
    /// Names without a folded form are refused.
    pub strict: bool,
}

impl CaseFolding {
    /// The folding of a volume; `None` without the feature, and for an encoding that is not known.
    pub fn of(sb: &Superblock) -> Option<Self> {
        let is_known = sb.s_encoding.get() == UTF8_12_1;
        (sb.incompat().contains(Incompat::CASEFOLD) && is_known).then_some(Self {
            strict: sb.s_encoding_flags.get() & STRICT != 0,
        })
    }

    /// The folded form of a name of a directory with this folding; `None` if it has none.
    pub fn fold(self, name: &[u8]) -> Option<Vec<u8>> {
        fold(name).ok()
    }

    /// Whether a name may be created.
    pub fn allows(self, name: &[u8]) -> bool {
        match fold(name) {
            Ok(_) => true,
            Err(Opaque::Malformed) => !self.strict,
            Err(Opaque::Unknown) => false,
        }
    }
}

/// Why a name has no folded form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opaque {
    /// It is not UTF-8.
    Malformed,
    /// Its form is not known.
    Unknown,
}

/// The folded form of a name.
fn fold(name: &[u8]) -> Result<Vec<u8>, Opaque> {
    if name.is_ascii() {
        return Ok(name.to_ascii_lowercase());
    }
    // Whether the last character before a single byte is a combining one, of any such byte.
    let (mut last_combines, mut is_unknown) = (false, false);
    let mut out = Vec::with_capacity(name.len());
    // Characters between two that end canonical order.
    let mut run = String::new();
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            let is_ignorable = c != IGNORABLE_LATER && IGNORABLE.has(c);
            if !is_ignorable && ASSIGNED.has(c) {
                run.push(c);
                continue;
            }
            end_run(&mut run, &mut out);
            last_combines = false;
            if !is_ignorable {
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        match chunk.invalid() {
            [] => {}
            [byte @ 0x80..=0xBF] => {
                last_combines = end_run(&mut run, &mut out).unwrap_or(last_combines);
                out.push(*byte);
            }
            _ => return Err(Opaque::Malformed),
        }
        is_unknown |= last_combines && !chunk.invalid().is_empty();
    }
    end_run(&mut run, &mut out);
    match is_unknown {
        true => Err(Opaque::Unknown),
        false => Ok(out),
    }
}

/// Appends the folded form of a run of assigned characters, and empties the run. Returns whether it ends in a
/// combining character; `None` if it was empty.
fn end_run(run: &mut String, out: &mut Vec<u8>) -> Option<bool> {
    if run.is_empty() {
        return None;
    }
    let mut combines = false;
    // No character of a decomposition has a folding of its own that its composition lacks: the test checks.
    let folded = UniCase::unicode(run.as_str()).to_folded_case();
    for c in folded.nfd() {
        combines = canonical_combining_class(c) != 0;
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    }
    run.clear();
    Some(combines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(name: &str) -> Vec<u8> {
        fold(name.as_bytes()).expect("UTF-8")
    }

    #[test]
    fn the_tables_are_those_of_the_version() {
        let sizes = [&ASSIGNED, &IGNORABLE].map(|property| {
            let sizes = property.0.iter().map(|&(a, b)| (a..=b).count());
            sizes.sum::<usize>()
        });
        // DerivedAge.txt of 12.1, without surrogates; DerivedCoreProperties.txt.
        assert_eq!(sizes, [275_528, 4174]);
        assert!(ASSIGNED.has('\u{32FF}') && !ASSIGNED.has('\u{1F6D7}'));
    }

    #[test]
    fn a_folded_form_stays_as_it_is() {
        for c in '\0'..=char::MAX {
            let once = folded(&c.to_string());
            assert_eq!(fold(&once).as_ref(), Ok(&once), "{:#x}", u32::from(c));
        }
    }

    #[test]
    fn names_that_differ_in_case_or_form_are_the_same() {
        for (a, b) in [
            ("README", "readme"),
            ("Straße", "STRASSE"),
            ("É", "e\u{301}"),
            ("ΑΣ", "ας"),
            ("İ", "i\u{307}"),
            ("\u{AD}soft", "SOFT"),
            ("각", "\u{1100}\u{1161}\u{11A8}"),
        ] {
            assert_eq!(folded(a), folded(b), "{a} {b}");
        }
        // Assigned after 12.1: no case.
        assert_ne!(folded("\u{A7C7}"), folded("\u{A7C8}"));
        assert_ne!(folded("ı"), folded("i"));
    }

    #[test]
    fn what_is_not_utf8_has_no_form_but_single_continuation_bytes_have() {
        assert_eq!(fold(b"A\x80B\xBF").as_deref(), Ok(&b"a\x80b\xBF"[..]));
        for unknown in [&b"e\xCC\x81\x80"[..], b"\xC3\x89\x80\x81"] {
            assert_eq!(fold(unknown), Err(Opaque::Unknown), "{unknown:?}");
        }
        for bad in [
            &b"A\xFF"[..],
            b"\xC3",
            b"\xE2\x82B",
            b"\xED\xA0\x80",
            b"\xC0\x80",
            b"\xF4\x90\x80\x80",
        ] {
            assert_eq!(fold(bad), Err(Opaque::Malformed), "{bad:?}");
        }
    }
}
