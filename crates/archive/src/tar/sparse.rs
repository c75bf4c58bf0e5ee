//! Maps of sparse files: GNU's old format in headers, and format 1.0 at the start of the data.

use super::BLOCK;
use super::header::{Header, number, size};
use super::pax::decimal;
use crate::content::Extent;
use crate::error::{Error, Result};
use crate::stream::Input;

fn wrong(problem: &str) -> Error {
    Error::damaged("sparse map", problem)
}

/// Adds an extent, whose place in the source is not known yet.
pub(super) fn add(map: &mut Vec<Extent>, offset: u64, length: u64, limit: u32) -> Result<()> {
    if map.len() >= limit as usize {
        return Err(Error::limit(
            "sparse map",
            format_args!("a file has more than {limit} extents"),
        ));
    }
    map.push(Extent {
        offset,
        length,
        at: 0,
    });
    Ok(())
}

fn add_fields(map: &mut Vec<Extent>, fields: &[u8], limit: u32) -> Result<()> {
    for pair in fields.chunks_exact(24) {
        if pair[0] == 0 {
            break;
        }
        add(
            map,
            size(number(&pair[..12])?)?,
            size(number(&pair[12..])?)?,
            limit,
        )?;
    }
    Ok(())
}

/// Old format: four extents in the header, more in the blocks after it. The map and the file's size.
pub(super) fn read_old(
    header: &Header<'_>,
    input: &mut dyn Input,
    limit: u32,
) -> Result<(Vec<Extent>, u64)> {
    let mut map = Vec::new();
    add_fields(&mut map, &header.0[386..482], limit)?;
    let real = size(number(&header.0[483..495])?)?;
    let mut more = header.0[482] != 0;
    while more {
        let mut block = [0; BLOCK];
        if input.read(&mut block)? < BLOCK {
            return Err(wrong("it is truncated"));
        }
        let before = map.len();
        add_fields(&mut map, &block[..504], limit)?;
        more = block[504] != 0;
        if more && map.len() == before {
            return Err(wrong("a block of it is empty"));
        }
    }
    Ok((map, real))
}

/// Format 1.0: decimal numbers, each with a newline, in whole blocks. The map, and the bytes it took.
pub(super) fn read_new(input: &mut dyn Input, data: u64, limit: u32) -> Result<(Vec<Extent>, u64)> {
    let mut reader = Numbers {
        input,
        left: data,
        block: [0; BLOCK],
        at: BLOCK,
        taken: 0,
    };
    let count = reader.next()?;
    let mut map = Vec::new();
    for _ in 0..count {
        let (offset, length) = (reader.next()?, reader.next()?);
        add(&mut map, offset, length, limit)?;
    }
    Ok((map, reader.taken))
}

struct Numbers<'i> {
    input: &'i mut dyn Input,
    left: u64,
    block: [u8; BLOCK],
    at: usize,
    taken: u64,
}

impl Numbers<'_> {
    fn next(&mut self) -> Result<u64> {
        let mut digits = Vec::new();
        loop {
            if self.at == BLOCK {
                let size = BLOCK as u64;
                if self.left < size || self.input.read(&mut self.block)? < BLOCK {
                    return Err(wrong("it is truncated"));
                }
                self.left -= size;
                self.taken += size;
                self.at = 0;
            }
            let byte = self.block[self.at];
            self.at += 1;
            match byte {
                b'\n' if !digits.is_empty() => return decimal(&digits),
                b'0'..=b'9' if digits.len() < 20 => digits.push(byte),
                _ => return Err(wrong("it is not made of numbers")),
            }
        }
    }
}

/// Where each extent is, if all are stored one after the other from `at`. Empty ones, which only mark the
/// file's end, go away.
pub(super) fn placed(map: Vec<Extent>, at: u64, stored: u64, size: u64) -> Result<Vec<Extent>> {
    let mut place = 0u64;
    let mut end = 0;
    let mut placed = Vec::new();
    for extent in map {
        let next = extent
            .offset
            .checked_add(extent.length)
            .filter(|&next| next <= size);
        let next = next.ok_or_else(|| wrong("it goes beyond the file's size"))?;
        if extent.offset < end {
            return Err(wrong("its extents overlap or are not in order"));
        }
        end = next;
        if extent.length == 0 {
            continue;
        }
        placed.push(Extent {
            at: at + place,
            ..extent
        });
        place = place
            .checked_add(extent.length)
            .filter(|&place| place <= stored)
            .ok_or_else(|| wrong("its extents are longer than the data"))?;
    }
    if place != stored {
        return Err(wrong("its extents are shorter than the data"));
    }
    Ok(placed)
}
