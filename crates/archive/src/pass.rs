//! One pass over the data of all sources.

use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::{Receiver, Sender, bounded};
use throughline_locks::Mutex;

use crate::error::{Error, Result};
use crate::source::{Access, CHUNK, Piece, Source, Visited};
use crate::threads;
use crate::tree::NodeId;

type Visit<'v> = dyn FnMut(NodeId, u64, &[u8]) -> Visited + 'v;

/// Decompressed data: bytes of one or more pieces.
struct Batch {
    bytes: Vec<u8>,
    /// Node, offset in it, and number of bytes.
    parts: Vec<(NodeId, u64, usize)>,
}

impl Batch {
    fn new() -> Batch {
        Batch {
            bytes: Vec::with_capacity(CHUNK),
            parts: Vec::new(),
        }
    }
}

/// Batches that a thread may be ahead by.
const AHEAD: usize = 8;
/// Pieces of one batch: files may be as small as a byte.
const PARTS: usize = 4096;

pub(crate) fn run(
    sources: &[Box<dyn Source>],
    pieces: &[Vec<Piece>],
    threads: usize,
    visit: &mut Visit<'_>,
) -> Result<()> {
    let mut streams = Vec::new();
    for (source, pieces) in sources
        .iter()
        .zip(pieces)
        .filter(|(_, pieces)| !pieces.is_empty())
    {
        match source.access() {
            Access::Random => random(&**source, pieces, visit)?,
            Access::Sequential => streams.push((&**source, &pieces[..])),
        }
    }
    if streams.is_empty() {
        return Ok(());
    }
    sequential(&streams, threads.min(streams.len()), visit)
}

fn random(source: &dyn Source, pieces: &[Piece], visit: &mut Visit<'_>) -> Result<()> {
    let mut buffer = vec![0; CHUNK];
    for of_item in pieces.chunk_by(|a, b| a.item == b.item) {
        let item = source.open_item(of_item[0].item)?;
        for piece in of_item {
            let mut done = 0;
            while done < piece.length {
                let part = (piece.length - done).min(CHUNK as u64) as usize;
                item.read_at(piece.at + done, &mut buffer[..part])?;
                visit(piece.node, piece.offset + done, &buffer[..part]).map_err(Error::Caller)?;
                done += part as u64;
            }
        }
        item.finish()?;
    }
    Ok(())
}

/// Full batches one way, empty ones the other.
struct Channels {
    full: Sender<Result<Batch>>,
    empty: Receiver<Batch>,
}

fn sequential(
    streams: &[(&dyn Source, &[Piece])],
    threads: usize,
    visit: &mut Visit<'_>,
) -> Result<()> {
    let next = Mutex::new(streams.iter());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (full, ready) = bounded(AHEAD * threads);
        let (recycle, empty) = bounded(AHEAD * threads);
        let (next, stop) = (&next, &stop);
        threads::start(scope, threads, || {
            let channels = Channels {
                full: full.clone(),
                empty: empty.clone(),
            };
            move || {
                while !stop.load(Ordering::Relaxed) {
                    let Some((source, pieces)) = next.lock().next() else {
                        return;
                    };
                    if let Err(error) = decode(*source, pieces, &channels, stop) {
                        // Without a receiver the pass has ended already.
                        let _ = channels.full.send(Err(error));
                        return;
                    }
                }
            }
        })?;
        drop(full);
        let visited = visit_all(&ready, &recycle, visit);
        stop.store(true, Ordering::Relaxed);
        // Threads that wait to send return now.
        drop(ready);
        visited
    })
}

fn visit_all(
    ready: &Receiver<Result<Batch>>,
    recycle: &Sender<Batch>,
    visit: &mut Visit<'_>,
) -> Result<()> {
    for batch in ready {
        let mut batch = batch?;
        let mut start = 0;
        for &(node, offset, length) in &batch.parts {
            visit(node, offset, &batch.bytes[start..start + length]).map_err(Error::Caller)?;
            start += length;
        }
        batch.bytes.clear();
        batch.parts.clear();
        // Full of empty batches already: this one is dropped.
        let _ = recycle.try_send(batch);
    }
    Ok(())
}

fn decode(
    source: &dyn Source,
    pieces: &[Piece],
    channels: &Channels,
    stop: &AtomicBool,
) -> Result<()> {
    let name = source.describe();
    let mut stream = source.open_stream()?;
    let mut position = 0;
    let mut batch = Batch::new();
    let mut scratch = vec![0; 64 << 10];
    for piece in pieces {
        if piece.at < position {
            return Err(Error::Invalid(format!(
                "{name}: two files have the same bytes of a stream"
            )));
        }
        skip(&mut *stream, piece.at - position, &mut scratch)
            .map_err(|error| Error::io(&name, error))?;
        let mut done = 0;
        while done < piece.length {
            let start = batch.bytes.len();
            let part = (piece.length - done).min((CHUNK - start) as u64) as usize;
            batch.bytes.resize(start + part, 0);
            let read = stream.read_exact(&mut batch.bytes[start..]);
            read.map_err(|error| Error::io(&name, error))?;
            batch.parts.push((piece.node, piece.offset + done, part));
            done += part as u64;
            if batch.bytes.len() == CHUNK || batch.parts.len() == PARTS {
                if stop.load(Ordering::Relaxed) || channels.full.send(Ok(batch)).is_err() {
                    return Ok(());
                }
                batch = channels.empty.try_recv().unwrap_or_else(|_| Batch::new());
            }
        }
        position = piece.at + piece.length;
    }
    drop(stream);
    source.finish_stream()?;
    if !batch.parts.is_empty() {
        let _ = channels.full.send(Ok(batch));
    }
    Ok(())
}

fn skip(stream: &mut dyn Read, bytes: u64, scratch: &mut [u8]) -> std::io::Result<()> {
    let mut left = bytes;
    while left > 0 {
        let part = left.min(scratch.len() as u64) as usize;
        stream.read_exact(&mut scratch[..part])?;
        left -= part as u64;
    }
    Ok(())
}
