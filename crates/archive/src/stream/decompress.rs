//! Compressed streams, recognized by their first bytes. A stream may consist of several members, one after
//! the other; zeros after the last are padding, anything else is an error.

use std::io::{self, BufRead, Read};

use liblzma::stream::{CONCATENATED, Stream};

use crate::error::Error;

/// Memory that an xz stream's dictionary may need; `xz -9` needs 65 MiB.
const XZ_MEMORY_BYTES: u64 = 512 << 20;
/// The largest window of a zstd frame, as a power of two: what the format recommends to support, and its own
/// tool's default. More needs `zstd --long`.
const ZSTD_WINDOW_LOG: u32 = 27;

/// How a stream is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    Gzip,
    Xz,
    Zstd,
    Bzip2,
}

impl Compression {
    /// What the first bytes say; six are enough.
    pub(crate) fn of(head: &[u8]) -> Compression {
        match head {
            [0x1f, 0x8b, ..] => Compression::Gzip,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Compression::Xz,
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Compression::Bzip2,
            _ => Compression::None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Compression::None => "plain",
            Compression::Gzip => "gzip",
            Compression::Xz => "xz",
            Compression::Zstd => "zstd",
            Compression::Bzip2 => "bzip2",
        }
    }

    /// Whether a member can begin with this byte.
    fn begins_with(self, byte: u8) -> bool {
        match self {
            Compression::Gzip => byte == 0x1f,
            Compression::Zstd => matches!(byte, 0x28 | 0x50..=0x5f),
            Compression::Bzip2 => byte == b'B',
            Compression::None | Compression::Xz => false,
        }
    }
}

/// The decompressed bytes, at most `limit_bytes`.
pub(crate) fn decoder<'a>(
    compression: Compression,
    input: impl BufRead + Send + 'a,
    limit_bytes: u64,
) -> io::Result<Box<dyn Read + Send + 'a>> {
    let decoded: Box<dyn Read + Send + 'a> = match compression {
        Compression::None => Box::new(input),
        Compression::Xz => {
            let stream = Stream::new_stream_decoder(XZ_MEMORY_BYTES, CONCATENATED)?;
            Box::new(liblzma::bufread::XzDecoder::new_stream(input, stream))
        }
        compression => Box::new(Members {
            compression,
            current: Member::Between(input),
            first: true,
        }),
    };
    Ok(Box::new(Bounded {
        inner: decoded,
        name: compression.name(),
        left: limit_bytes,
        limit_bytes,
    }))
}

enum Member<R: BufRead> {
    Between(R),
    Gzip(Box<flate2::bufread::GzDecoder<R>>),
    Bzip2(bzip2::bufread::BzDecoder<R>),
    Zstd(zstd::stream::read::Decoder<'static, R>),
    Ended,
}

/// Members one after the other.
struct Members<R: BufRead> {
    compression: Compression,
    current: Member<R>,
    first: bool,
}

impl<R: BufRead> Members<R> {
    fn open(&self, input: R) -> io::Result<Member<R>> {
        Ok(match self.compression {
            Compression::Gzip => Member::Gzip(Box::new(flate2::bufread::GzDecoder::new(input))),
            Compression::Bzip2 => Member::Bzip2(bzip2::bufread::BzDecoder::new(input)),
            _ => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(input)?.single_frame();
                decoder.window_log_max(ZSTD_WINDOW_LOG)?;
                Member::Zstd(decoder)
            }
        })
    }

    /// Begins the next member, or finds the end.
    fn begin(&mut self, mut input: R) -> io::Result<Member<R>> {
        let mut padding = false;
        loop {
            let bytes = input.fill_buf()?;
            let Some(&first) = bytes.first() else {
                return Ok(Member::Ended);
            };
            if !self.first && first == 0 {
                padding = true;
                let zeros = bytes.iter().take_while(|&&byte| byte == 0).count();
                input.consume(zeros);
                continue;
            }
            if self.first || (self.compression.begins_with(first) && !padding) {
                self.first = false;
                return self.open(input);
            }
            let text = format!(
                "trailing garbage after the {} stream",
                self.compression.name()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
    }
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            let read = match &mut self.current {
                Member::Between(_) => 0,
                Member::Gzip(decoder) => decoder.read(buffer)?,
                Member::Bzip2(decoder) => decoder.read(buffer)?,
                Member::Zstd(decoder) => decoder.read(buffer)?,
                Member::Ended => return Ok(0),
            };
            if read > 0 {
                return Ok(read);
            }
            let input = match std::mem::replace(&mut self.current, Member::Ended) {
                Member::Between(input) => input,
                Member::Gzip(decoder) => decoder.into_inner(),
                Member::Bzip2(decoder) => decoder.into_inner(),
                Member::Zstd(decoder) => decoder.finish(),
                Member::Ended => return Ok(0),
            };
            self.current = self.begin(input)?;
        }
    }
}

/// Ends with an error at the limit, and names the compression in errors.
struct Bounded<'a> {
    inner: Box<dyn Read + Send + 'a>,
    name: &'static str,
    left: u64,
    limit_bytes: u64,
}

impl Read for Bounded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("the {} stream is damaged or truncated: {error}", self.name),
            )
        })?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| {
            let problem = format!("it decompresses to more than {} bytes", self.limit_bytes);
            io::Error::other(Error::limit(format_args!("{} stream", self.name), problem))
        })?;
        Ok(read)
    }
}
