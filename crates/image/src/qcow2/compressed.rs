//! Compressed clusters. The last one that was read is kept: programs read several parts of it in turn.

use std::io::{self, Read};

use flate2::{Decompress, FlushDecompress};
use throughline_locks::{Mutex, Rank};

use super::broken;
use super::cluster::{Clusters, size};
use super::header::Compression;
use crate::source::ReadAt;

/// See the head of this file.
pub(super) struct Decompressor {
    compression: Compression,
    clusters: Clusters,
    /// Where it is in the file, and its bytes.
    last: Mutex<(u64, Vec<u8>)>,
}

impl Decompressor {
    pub(super) fn new(compression: Compression, clusters: Clusters) -> Decompressor {
        Decompressor {
            compression,
            clusters,
            last: Mutex::ranked(Rank::ImageReader, (u64::MAX, Vec::new())),
        }
    }

    /// Reads from byte `within` of the cluster that is in `len_bytes` at `place`.
    ///
    /// # Errors
    /// If it cannot be decompressed; of the device.
    pub(super) fn read(
        &self,
        file: &dyn ReadAt,
        (place, len_bytes): (u64, u64),
        within: u64,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        let mut last = self.last.lock();
        if last.0 != place {
            last.0 = u64::MAX;
            let mut packed = vec![0; size(len_bytes)];
            super::read_cut_short(file, &mut packed, place)?;
            let mut cluster = vec![0; self.clusters.len()];
            self.decompress(&packed, &mut cluster).map_err(|why| {
                broken(format!("the cluster at byte {place} cannot be read: {why}"))
            })?;
            *last = (place, cluster);
        }
        let from = size(within);
        let bytes = last.1.get(from..from.saturating_add(buffer.len()));
        buffer.copy_from_slice(bytes.ok_or_else(|| broken("a compressed cluster is too short"))?);
        Ok(())
    }

    fn decompress(&self, packed: &[u8], cluster: &mut [u8]) -> io::Result<()> {
        match self.compression {
            Compression::Deflate => {
                let mut stream = Decompress::new(false);
                let done = stream.decompress(packed, cluster, FlushDecompress::Finish);
                done.map_err(io::Error::other)?;
                match usize::try_from(stream.total_out()) == Ok(cluster.len()) {
                    true => Ok(()),
                    false => Err(io::ErrorKind::UnexpectedEof.into()),
                }
            }
            // What follows in the last sector is not of this cluster.
            Compression::Zstd => {
                let stream = zstd::stream::read::Decoder::with_buffer(packed)?;
                stream.single_frame().read_exact(cluster)
            }
        }
    }
}
