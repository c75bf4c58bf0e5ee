//! A mapper in memory: fragmented, with holes and unwritten blocks, limited space, and strict checks of its
//! contract.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Condvar, Mutex};

use crate::common::Rng;
use throughline_fileio::{
    Claim, ClaimKind, Error, Map, MappedExtent, Mapper, Reason, Result, Target,
};

/// Allocation unit in bytes.
pub(crate) const BLOCK: u64 = 4096;

/// Contents of newly allocated device blocks. No reader may ever see these bytes.
pub(crate) const STALE: u8 = 0xEE;

#[derive(Clone, Copy, PartialEq, Eq)]
struct Mapped {
    device: u64,
    written: bool,
}

struct State {
    map: BTreeMap<u64, Mapped>,
    free: Vec<u64>,
    size: u64,
    /// Open claims by id: the claim, and whether each block was new.
    out: HashMap<u64, Claim>,
    next_id: u64,
    rng: Rng,
}

pub(crate) struct FakeMapper {
    state: Mutex<State>,
    claim_ended: Condvar,
    blocks: u64,
}

impl FakeMapper {
    /// Over device blocks `0..blocks`, allocated in runs of up to `longest_run` blocks in a seeded order.
    pub(crate) fn new(blocks: u64, longest_run: u64, seed: u64) -> Self {
        let mut rng = Rng(seed);
        let mut runs = Vec::new();
        let mut at = 0;
        while at < blocks {
            let len = (1 + rng.below(longest_run)).min(blocks - at);
            runs.push((at, len));
            at += len;
        }
        for i in (1..runs.len()).rev() {
            runs.swap(i, rng.below(i as u64 + 1) as usize);
        }
        // Allocated from the back, ascending inside a run.
        let free = runs
            .into_iter()
            .flat_map(|(at, len)| (at..at + len).rev())
            .collect();
        let state = State {
            map: BTreeMap::new(),
            free,
            size: 0,
            out: HashMap::new(),
            next_id: 1,
            rng,
        };
        Self {
            state: Mutex::new(state),
            claim_ended: Condvar::new(),
            blocks,
        }
    }

    /// Allocates unwritten blocks for file blocks `from..from + len`, as `fallocate` does.
    pub(crate) fn preallocate(&self, from: u64, len: u64) {
        let mut state = self.state.lock().unwrap();
        for block in from..from + len {
            if !state.map.contains_key(&block) {
                let Some(device) = state.free.pop() else {
                    return;
                };
                state.map.insert(
                    block,
                    Mapped {
                        device,
                        written: false,
                    },
                );
            }
        }
    }

    /// Checks that every block is either free or mapped, and that no claim is open.
    pub(crate) fn assert_no_open_claims(&self) {
        let state = self.state.lock().unwrap();
        assert!(
            state.out.is_empty(),
            "claims neither committed nor abandoned: {:?}",
            state.out
        );
        let mut all: Vec<u64> = state.free.clone();
        all.extend(state.map.values().map(|mapped| mapped.device));
        all.sort_unstable();
        assert_eq!(
            all,
            (0..self.blocks).collect::<Vec<_>>(),
            "blocks lost or used twice"
        );
    }

    fn is_claimed(state: &State, block: u64) -> bool {
        let at = block * BLOCK;
        state
            .out
            .values()
            .any(|claim| claim.file_offset <= at && at < claim.file_offset + claim.len)
    }
}

/// How many of the blocks from `first` on (at most `most`) are contiguous on the device, all with state
/// `written`.
fn run(state: &State, first: u64, most: u64) -> u64 {
    let start = state.map[&first];
    (1..most)
        .take_while(|i| {
            state.map.get(&(first + i)).is_some_and(|next| {
                *next
                    == Mapped {
                        device: start.device + i,
                        written: start.written,
                    }
            })
        })
        .count() as u64
        + 1
}

impl Map for FakeMapper {
    fn block_bytes(&self) -> u32 {
        BLOCK as u32
    }

    fn size_bytes(&self) -> u64 {
        self.state.lock().unwrap().size
    }

    fn map(&self, file_offset: u64, len: u64) -> Result<MappedExtent> {
        assert!(len > 0);
        let state = self.state.lock().unwrap();
        let first = file_offset / BLOCK;
        let most = (file_offset + len).div_ceil(BLOCK) - first;
        let (blocks, target) = match state.map.get(&first) {
            None => {
                let next = state
                    .map
                    .range(first..)
                    .next()
                    .map_or(u64::MAX, |(block, _)| *block);
                ((next - first).min(most), Target::Hole)
            }
            Some(mapped) => {
                let device_offset = mapped.device * BLOCK;
                let target = match mapped.written {
                    true => Target::Data { device_offset },
                    false => Target::Unwritten { device_offset },
                };
                (run(&state, first, most), target)
            }
        };
        Ok(MappedExtent {
            file_offset: first * BLOCK,
            len: blocks * BLOCK,
            target,
        })
    }
}

impl Mapper for FakeMapper {
    fn claim(&self, file_offset: u64, len: u64) -> Result<Claim> {
        assert!(len > 0);
        let first = file_offset / BLOCK;
        let most = (file_offset + len).div_ceil(BLOCK) - first;
        let mut state = self.state.lock().unwrap();
        while Self::is_claimed(&state, first) {
            state = self.claim_ended.wait(state).unwrap();
        }
        let unclaimed = (0..most)
            .take_while(|i| !Self::is_claimed(&state, first + i))
            .count() as u64;
        let wanted = 1 + state.rng.below(unclaimed);
        let id = state.next_id;
        state.next_id += 1;
        if let Some(mapped) = state.map.get(&first).copied() {
            let blocks = run(&state, first, wanted);
            let kind = if mapped.written {
                ClaimKind::Overwrite
            } else {
                ClaimKind::Convert
            };
            let device_offset = mapped.device * BLOCK;
            let claim = Claim {
                file_offset: first * BLOCK,
                len: blocks * BLOCK,
                device_offset,
                kind,
                id,
            };
            if kind == ClaimKind::Overwrite {
                // Clipped to the requested range at both ends.
                let skip = file_offset - claim.file_offset;
                let len = (claim.len - skip).min(len);
                return Ok(Claim {
                    file_offset,
                    len,
                    device_offset: claim.device_offset + skip,
                    ..claim
                });
            }
            state.out.insert(id, claim);
            return Ok(claim);
        }
        let device = state.free.pop().ok_or(Error::Caller(Reason::NoSpace))?;
        let mut blocks = 1;
        while blocks < wanted
            && !state.map.contains_key(&(first + blocks))
            && state.free.last() == Some(&(device + blocks))
        {
            state.free.pop();
            blocks += 1;
        }
        let claim = Claim {
            file_offset: first * BLOCK,
            len: blocks * BLOCK,
            device_offset: device * BLOCK,
            kind: ClaimKind::New,
            id,
        };
        state.out.insert(id, claim);
        Ok(claim)
    }

    fn commit(&self, claims: &[Claim], new_size: Option<u64>) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        for claim in claims {
            assert_eq!(
                state.out.remove(&claim.id).as_ref(),
                Some(claim),
                "unknown claim"
            );
            for i in 0..claim.len / BLOCK {
                let mapped = Mapped {
                    device: claim.device_offset / BLOCK + i,
                    written: true,
                };
                let before = state.map.insert(claim.file_offset / BLOCK + i, mapped);
                assert_eq!(
                    before.is_some(),
                    claim.kind == ClaimKind::Convert,
                    "mapped twice"
                );
            }
        }
        state.size = state.size.max(new_size.unwrap_or(0));
        self.claim_ended.notify_all();
        Ok(())
    }

    fn abandon(&self, claims: &[Claim]) {
        let mut state = self.state.lock().unwrap();
        for claim in claims {
            assert_eq!(
                state.out.remove(&claim.id).as_ref(),
                Some(claim),
                "unknown claim"
            );
            if claim.kind == ClaimKind::New {
                let device = claim.device_offset / BLOCK;
                state
                    .free
                    .extend((device..device + claim.len / BLOCK).rev());
            }
        }
        self.claim_ended.notify_all();
    }
}
