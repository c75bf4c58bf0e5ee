//! Maps claims whose data is on the device, together with their bits and the size that they reach.
//!
//! This may take several transactions, in ascending order, each with the size reached so far: a crash between
//! two of them leaves a file that ends in the middle of the write. If space runs out half-way, the claims
//! already mapped remain.

use throughline_extfmt::FileBlock;
use throughline_extfmt::extent::Extent;
use throughline_fileio::{Claim, ClaimKind};

use super::claim::Claimed;
use super::{FileMapper, Place};
use crate::balloc::GROUP_CREDITS;
use crate::delayed::Lent;
use crate::emptied;
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::inode::INODE_CREDITS;
use crate::map::{self, CONVERT_CREDITS, Format, INSERT_CREDITS, Spare};
use crate::regular;

/// The part of a write that is not mapped yet.
struct Left<'c> {
    /// Ascending.
    claims: &'c [Claim],
    /// Where the conversion of the first claim continues; its start if not begun.
    convert_from: Option<u64>,
    /// End of the last mapped file byte; 0 if none.
    entered_to: u64,
}

impl Left<'_> {
    /// Marks the first claim as mapped.
    fn pass(&mut self) {
        if let Some((first, rest)) = self.claims.split_first() {
            self.entered_to = first.file_offset.saturating_add(first.len);
            self.claims = rest;
            self.convert_from = None;
        }
    }
}

impl<P: Place> FileMapper<P> {
    /// Maps claims and extends the file to the size they reach, at most `new_size`; at the end to `new_size`.
    pub(super) fn commit_claims(&self, claims: &mut [Claim], new_size: Option<u64>) -> Result<()> {
        claims.sort_unstable_by_key(|c| c.file_offset);
        let mut left = Left {
            claims,
            convert_from: None,
            entered_to: 0,
        };
        loop {
            self.fs()
                .with_room(|| self.commit_some(&mut left, new_size.unwrap_or(0)))?;
            if left.claims.is_empty() {
                return Ok(());
            }
        }
    }

    /// One transaction. If it fails with a `Reason` for the first remaining claim, the claims before that are
    /// mapped, and the call may be repeated.
    fn commit_some(&self, left: &mut Left<'_>, new_size: u64) -> Result<()> {
        let (fs, inode) = (self.fs(), self.inode());
        let all = left
            .claims
            .iter()
            .map(|c| self.credits(c))
            .fold(INODE_CREDITS, u32::saturating_add);
        let first = left.claims.first().map_or(0, |c| self.credits(c)) + INODE_CREDITS;
        // A rewritten file frees all its old blocks in the same transaction.
        let freed = inode.emptied.credits();
        let most = match freed {
            Some(freed) => fs.max_credits().saturating_sub(freed),
            None => fs.step_credits(),
        };
        let credits = all.min(most).max(first);
        fs.transact(credits.saturating_add(freed.unwrap_or(0)), |h| {
            let _map = inode.map_exclusive();
            emptied::end(fs, h, inode)?;
            let result = self.enter_some(h, left);
            if result
                .as_ref()
                .is_err_and(|e| !matches!(e, Error::Caller(_)))
            {
                return result;
            }
            let reached = if left.claims.is_empty() {
                new_size
            } else {
                left.entered_to.min(new_size)
            };
            regular::grow_to(fs, h, inode, reached)?;
            if !P::WRITE_BACK {
                regular::touch(fs, inode);
            }
            fs.store(h, inode)?;
            result
        })
    }

    /// Maps claims as far as the credits allow: at least one step of one claim.
    fn enter_some(&self, h: &mut Handle<'_>, left: &mut Left<'_>) -> Result<()> {
        let fs = self.fs();
        while let Some(claim) = left.claims.first() {
            if h.credits_left() < self.credits(claim) + INODE_CREDITS {
                break;
            }
            match claim.kind {
                ClaimKind::Overwrite => left.pass(),
                ClaimKind::New => {
                    self.enter_new(h, claim)?;
                    left.pass();
                }
                ClaimKind::Convert => {
                    let start = claim.file_offset >> fs.geo.block_log;
                    let end = start + (claim.len >> fs.geo.block_log);
                    let from = left.convert_from.unwrap_or(start);
                    let mut spare = Spare::new(None, 0, P::WRITE_BACK);
                    let range = (from, end);
                    match map::set_written(fs, h, self.inode(), range, &mut spare)? {
                        Some(next) => {
                            left.convert_from = Some(next);
                            left.entered_to = self.bytes(next);
                        }
                        None => {
                            if P::WRITE_BACK {
                                self.inode().delayed.converted(end - start);
                            }
                            left.pass();
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Maps new blocks and sets their bits. If there is no space for tables, the blocks stay claimed.
    fn enter_new(&self, h: &mut Handle<'_>, claim: &Claim) -> Result<()> {
        let (fs, inode) = (self.fs(), self.inode());
        let claimed = self
            .claimed(claim)
            .ok_or_else(|| Error::corrupt("a claim was committed twice"))?;
        let data = claimed.data;
        let first = FileBlock((claim.file_offset >> fs.geo.block_log) as u32);
        let extent = Extent {
            block: first,
            len: data.len,
            start: data.start,
            unwritten: false,
        };
        let mut spare = Spare::new(claimed.spare, claimed.owed, P::WRITE_BACK);
        let result = map::enter(fs, h, inode, extent, Some(&mut spare));
        let (spare, owed) = spare.rest();
        let rest = Claimed {
            spare,
            owed,
            ..claimed
        };
        let tables = claimed.lent().tables - rest.lent().tables;
        let gained = match result {
            Ok(gained) => gained,
            Err(error) => {
                if claimed.reserved {
                    inode.delayed.entered(Lent {
                        tables,
                        ..Lent::default()
                    });
                }
                self.keep(claim, rest);
                return Err(error);
            }
        };
        self.take_claim(claim);
        let result = gained.map_or(Ok(()), |run| fs.confirm(h, run));
        self.clusters_entered(&claimed);
        if !claimed.reserved {
            rest.spare.into_iter().for_each(|rest| fs.release(rest));
            return result;
        }
        inode.delayed.entered(Lent {
            units: data.len,
            tables,
            short: claimed.short,
        });
        // A concurrent commit may have created the table; the reservation for it is then still needed by
        // others.
        rest.spare
            .into_iter()
            .for_each(|rest| fs.release_to_reserve(rest));
        inode.delayed.take_back(Lent {
            tables: rest.lent().tables,
            ..Lent::default()
        });
        self.call.lock().entered += u64::from(data.len);
        if Format::of(&inode.raw.read()) == Format::Indirect {
            inode.delayed.tables_made(fs, (first, data.len))?;
        }
        result
    }

    /// Upper bound of the blocks that mapping a claim changes; for a conversion, per step.
    fn credits(&self, claim: &Claim) -> u32 {
        let count = (claim.len >> self.fs().geo.block_log) as u32;
        match claim.kind {
            ClaimKind::Overwrite => 0,
            ClaimKind::New if Format::of(&self.inode().raw.read()) == Format::Indirect => {
                map::table_credits(self.fs(), count) + GROUP_CREDITS
            }
            ClaimKind::New => INSERT_CREDITS + GROUP_CREDITS,
            ClaimKind::Convert => CONVERT_CREDITS,
        }
    }
}
