//! The header block, as POSIX and the manual of GNU tar describe it.

use super::BLOCK;
use crate::error::{Error, Result};
use crate::meta::Device;

/// A header whose checksum is right.
pub(super) struct Header<'b>(pub(super) &'b [u8; BLOCK]);

impl<'b> Header<'b> {
    /// Checks the block's checksum: the sum of its bytes, with spaces for the sum itself. Some old programs
    /// add signed bytes.
    pub(super) fn new(block: &'b [u8; BLOCK]) -> Option<Header<'b>> {
        let byte = |(at, &byte): (usize, &u8)| if (148..156).contains(&at) { b' ' } else { byte };
        let unsigned: u64 = block.iter().enumerate().map(byte).map(u64::from).sum();
        let signed: i64 = block
            .iter()
            .enumerate()
            .map(byte)
            .map(|byte| i64::from(byte as i8))
            .sum();
        let sum = number(&block[148..156]).ok()?;
        (sum == unsigned as i64 || sum == signed).then_some(Header(block))
    }

    pub(super) fn kind(&self) -> u8 {
        self.0[156]
    }

    fn is_gnu(&self) -> bool {
        self.0[257..265] == *b"ustar  \0"
    }

    fn is_ustar(&self) -> bool {
        self.0[257..263] == *b"ustar\0"
    }

    pub(super) fn path(&self) -> Vec<u8> {
        let name = text(&self.0[..100]);
        let prefix = text(&self.0[345..500]);
        if self.is_ustar() && !prefix.is_empty() {
            [prefix, b"/", name].concat()
        } else {
            name.to_vec()
        }
    }

    pub(super) fn link(&self) -> Vec<u8> {
        text(&self.0[157..257]).to_vec()
    }

    pub(super) fn permissions(&self) -> Result<u16> {
        Ok((number(&self.0[100..108])? & 0o7777) as u16)
    }

    pub(super) fn uid(&self) -> Result<u32> {
        id(number(&self.0[108..116])?)
    }

    pub(super) fn gid(&self) -> Result<u32> {
        id(number(&self.0[116..124])?)
    }

    pub(super) fn size(&self) -> Result<u64> {
        size(number(&self.0[124..136])?)
    }

    pub(super) fn mtime(&self) -> Result<i64> {
        number(&self.0[136..148])
    }

    pub(super) fn device(&self) -> Result<Device> {
        Ok(Device {
            major: id(number(&self.0[329..337])?)?,
            minor: id(number(&self.0[337..345])?)?,
        })
    }

    /// Access and change times of GNU's header, where they are not 0.
    pub(super) fn gnu_times(&self) -> Result<(Option<i64>, Option<i64>)> {
        if !self.is_gnu() {
            return Ok((None, None));
        }
        let set = |time: i64| Some(time).filter(|&time| time != 0);
        Ok((
            set(number(&self.0[345..357])?),
            set(number(&self.0[357..369])?),
        ))
    }
}

pub(super) fn id(value: i64) -> Result<u32> {
    u32::try_from(value)
        .map_err(|_| Error::damaged("header", format_args!("the number {value} is no ID")))
}

pub(super) fn size(value: i64) -> Result<u64> {
    u64::try_from(value).map_err(|_| Error::damaged("header", format_args!("the size is {value}")))
}

/// A text that ends with a NUL or with its field.
fn text(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|&byte| byte == 0);
    &field[..end.unwrap_or(field.len())]
}

/// A number: octal digits, or GNU's base 256 where the first bit is set.
pub(super) fn number(field: &[u8]) -> Result<i64> {
    let wrong = || {
        Error::damaged(
            "header",
            format_args!("\"{}\" is not a number", field.escape_ascii()),
        )
    };
    if field[0] & 0x80 != 0 {
        let negative = field[0] & 0x40 != 0;
        // 63 bits fit; those before must all be the sign.
        let first = i128::from(field[0] & 0x3f) - if negative { 0x40 } else { 0 };
        let value = field[1..].iter().try_fold(first, |value, &byte| {
            value.checked_mul(256).map(|value| value | i128::from(byte))
        });
        return value
            .and_then(|value| i64::try_from(value).ok())
            .ok_or_else(wrong);
    }
    let field = field.trim_ascii_start();
    let end = field
        .iter()
        .position(|&byte| matches!(byte, 0 | b' '))
        .unwrap_or(field.len());
    field[..end]
        .iter()
        .try_fold(0i64, |value, &byte| match byte {
            b'0'..=b'7' => value
                .checked_mul(8)
                .map(|value| value + i64::from(byte - b'0'))
                .ok_or_else(wrong),
            _ => Err(wrong()),
        })
}
