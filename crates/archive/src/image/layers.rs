//! From an image to its layers, and from these to a tree.
//!
//! Every digest is verified: in an OCI layout that of the blob; in a `docker save` archive that of the
//! decompressed layer, from the configuration.

use std::collections::HashSet;
use std::fmt;
use std::io::{BufReader, Read};
use std::sync::Arc;

use super::Store;
use super::blobs::Document as What;
use super::json::{Config, Descriptor, DockerImage, Document};
use super::sum::DigestSum;
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::stream::{Compression, StreamInput, Window, decoder, from_read};
use crate::tar::{Entry, Reader};
use crate::threads;
use crossbeam_channel::{Receiver, Sender, bounded};
use throughline_locks::Mutex;

/// Which image of several to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    /// As in Go: `linux`.
    pub os: String,
    /// As in Go: `amd64`, `arm64`.
    pub architecture: String,
    /// As `v7` of `arm`; whatever comes first if not given.
    pub variant: Option<String>,
}

impl Default for Platform {
    /// Linux on this machine's processor.
    fn default() -> Platform {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "x86" => "386",
            other => other,
        };
        Platform {
            os: "linux".to_owned(),
            architecture: architecture.to_owned(),
            variant: None,
        }
    }
}

/// As it is given: `linux/arm/v7`.
impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) => write!(f, "/{variant}"),
            None => Ok(()),
        }
    }
}

/// A layer: a tar, perhaps compressed.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    pub(crate) name: String,
    pub(crate) window: Window,
    pub(crate) compression: Compression,
    digest: String,
    /// Whether the digest is that of the decompressed bytes.
    of_decompressed: bool,
}

/// Indexes within indexes.
const INDEXES_MAX: usize = 4;
/// Layers of an image; overlay file systems allow 500.
const LAYERS_MAX: usize = 4096;
/// Bytes of layers that are listed again, for each byte of all different ones. Empty layers are repeated
/// often, others are a few times.
const REPEATED_MAX: u64 = 8;
const REPEATED_BYTES: u64 = 1 << 20;

/// The layers of the image that is wanted, the lowest first. An image that is known to be for another
/// platform than the one given is refused.
pub(crate) fn layers_of(
    store: &Store<'_>,
    wanted: Option<&str>,
    platform: Option<&Platform>,
) -> Result<Vec<Layer>> {
    let layers = if store.is_oci() {
        oci(store, wanted, platform)?
    } else {
        docker(store, wanted, platform)?
    };
    if layers.len() > LAYERS_MAX {
        return Err(too_many(layers.len()));
    }
    let listed = layers
        .iter()
        .map(|layer| (&layer.digest[..], layer.window.length));
    check_repeated(listed)?;
    Ok(layers)
}

/// Refuses an image that consists of little and lists that again and again: each listed layer is read.
fn check_repeated<'l>(layers: impl Iterator<Item = (&'l str, u64)>) -> Result<()> {
    let mut seen = HashSet::new();
    let (mut once, mut again) = (0_u64, 0_u64);
    for (digest, bytes) in layers {
        let sum = match seen.insert(digest) {
            true => &mut once,
            false => &mut again,
        };
        *sum = sum.saturating_add(bytes);
    }
    if again > once.saturating_mul(REPEATED_MAX).max(REPEATED_BYTES) {
        let problem =
            format!("its layers have {once} bytes, and {again} more by being listed again");
        return Err(Error::limit("image", problem));
    }
    Ok(())
}

fn oci(store: &Store<'_>, wanted: Option<&str>, given: Option<&Platform>) -> Result<Vec<Layer>> {
    let mut document: Document = match store {
        Store::Remote(image, _) => store.blob(&image.root()?, None, What::Manifest)?,
        _ => store.document("index.json")?.0,
    };
    let mut wanted = wanted;
    let usual = Platform::default();
    let platform = given.unwrap_or(&usual);
    let mut is_said = false;
    for _ in 0..INDEXES_MAX {
        if let Some(layers) = document.layers {
            if let Some(platform) = given.filter(|_| !is_said) {
                check_platform(platform, &oci_config(store, document.config.as_ref())?)?;
            }
            return oci_layers(store, &layers);
        }
        let manifests = document.manifests.unwrap_or_default();
        let chosen = choose(&manifests, wanted.take(), platform)?;
        is_said |= chosen.platform.is_some();
        document = store.blob(&chosen.digest, None, What::Manifest)?;
    }
    Err(Error::damaged(
        "image",
        "its indexes are nested too deep, or its manifest has no layers",
    ))
}

fn oci_config(store: &Store<'_>, config: Option<&Descriptor>) -> Result<Config> {
    match config {
        Some(config) => store.blob(&config.digest, Some(config.size), What::Config),
        None => Ok(Config::default()),
    }
}

/// Refuses an image whose index names no platform, if its configuration names another one or none.
fn check_platform(wanted: &Platform, config: &Config) -> Result<()> {
    let (Some(os), Some(architecture)) = (&config.os, &config.architecture) else {
        return Err(Error::Invalid(format!(
            "the image does not say which platform it is for, so it cannot be taken for {wanted}"
        )));
    };
    let found = Platform {
        os: os.clone(),
        architecture: architecture.clone(),
        variant: config.variant.clone(),
    };
    let is_variant = wanted.variant.is_none() || wanted.variant == found.variant;
    match (os, architecture) == (&wanted.os, &wanted.architecture) && is_variant {
        true => Ok(()),
        false => Err(Error::Invalid(format!(
            "the image is for {found}, not for {wanted}"
        ))),
    }
}

fn choose<'m>(
    manifests: &'m [Descriptor],
    wanted: Option<&str>,
    platform: &Platform,
) -> Result<&'m Descriptor> {
    const NAME: &str = "org.opencontainers.image.ref.name";
    let named = |descriptor: &&Descriptor| {
        wanted.is_none_or(|wanted| {
            descriptor
                .annotations
                .get(NAME)
                .is_some_and(|name| name == wanted)
        })
    };
    let fits = |descriptor: &&Descriptor| {
        descriptor.platform.as_ref().is_none_or(|other| {
            let variant = platform.variant.is_none() || other.variant == platform.variant;
            other.os == platform.os && other.architecture == platform.architecture && variant
        })
    };
    let candidates: Vec<&Descriptor> = manifests.iter().filter(named).collect();
    let fitting: Vec<&Descriptor> = candidates
        .iter()
        .copied()
        .filter(|descriptor| fits(descriptor))
        .collect();
    match fitting[..] {
        [one] => Ok(one),
        [first, ..] if first.platform.is_some() => Ok(first),
        [] => {
            let names = candidates
                .iter()
                .filter_map(|descriptor| descriptor.platform.as_ref());
            let names: Vec<String> = names
                .map(|other| format!("{}/{}", other.os, other.architecture))
                .collect();
            Err(Error::Invalid(format!(
                "no image of that name for {platform}; there are: {names:?}"
            )))
        }
        _ => {
            let names: Vec<_> = fitting
                .iter()
                .filter_map(|descriptor| descriptor.annotations.get(NAME))
                .collect();
            Err(Error::Invalid(format!(
                "there are several images; name one of {names:?}"
            )))
        }
    }
}

fn oci_layers(store: &Store<'_>, layers: &[Descriptor]) -> Result<Vec<Layer>> {
    if layers.len() > LAYERS_MAX {
        return Err(too_many(layers.len()));
    }
    for Descriptor { media_type, .. } in layers {
        let known = ["tar", "tar+gzip", "tar+zstd", "tar.gzip", "tar.zstd"]
            .iter()
            .any(|end| media_type.ends_with(end));
        if !known || media_type.contains("foreign") {
            return Err(Error::Unsupported(format!(
                "layers of the media type {media_type} are not read"
            )));
        }
    }
    let windows = store.layers(layers)?.into_iter();
    let layers = windows.zip(layers.iter().map(|layer| layer.digest.clone()));
    layers
        .map(|(window, digest)| new_layer(window, digest.clone(), digest, false))
        .collect()
}

fn too_many(layers: usize) -> Error {
    Error::limit(
        "image",
        format_args!("it has {layers} layers, over {LAYERS_MAX}"),
    )
}

/// Whether a tag is meant by a name, which may leave out the default registry, as in Docker.
fn is_called(tag: &str, name: &str) -> bool {
    let short = tag.strip_prefix("docker.io/").unwrap_or(tag);
    let shortest = short.strip_prefix("library/").unwrap_or(short);
    [tag, short, shortest].contains(&name)
}

fn docker(
    store: &Store<'_>,
    wanted: Option<&str>,
    platform: Option<&Platform>,
) -> Result<Vec<Layer>> {
    let (images, _): (Vec<DockerImage>, _) = store.document("manifest.json")?;
    let tagged = |image: &&DockerImage| {
        let tags = image.repo_tags.as_deref().unwrap_or_default();
        wanted.is_none_or(|wanted| tags.iter().any(|tag| is_called(tag, wanted)))
    };
    let found: Vec<&DockerImage> = images.iter().filter(tagged).collect();
    let [image] = found[..] else {
        let tags: Vec<_> = images
            .iter()
            .filter_map(|image| image.repo_tags.as_ref())
            .flatten()
            .collect();
        return Err(Error::Invalid(format!(
            "there is not one image of that name; name one of {tags:?}"
        )));
    };
    let (config, _): (Config, _) = store.document(&image.config)?;
    if let Some(platform) = platform {
        check_platform(platform, &config)?;
    }
    if config.rootfs.diff_ids.len() != image.layers.len() {
        return Err(Error::damaged(
            &image.config,
            "it does not have as many layers as the manifest",
        ));
    }
    let layers = image.layers.iter().zip(config.rootfs.diff_ids);
    layers
        .map(|(path, digest)| new_layer(store.open(path)?, path.clone(), digest, true))
        .collect()
}

fn new_layer(window: Window, name: String, digest: String, of_decompressed: bool) -> Result<Layer> {
    let compression = window.compression();
    let compression = compression.map_err(|error| Error::io(&name, error))?;
    DigestSum::new(&digest)?;
    Ok(Layer {
        name: format!("layer {name}"),
        compression,
        window,
        digest,
        of_decompressed,
    })
}

/// Passes bytes on, and sums them.
struct Summed<R> {
    inner: R,
    sum: Arc<Mutex<Option<DigestSum>>>,
}

impl<R: Read> Read for Summed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        if let Some(sum) = &mut *self.sum.lock() {
            sum.update(&buffer[..read]);
        }
        Ok(read)
    }
}

/// Limits of reading ahead: members per batch; bytes at which a batch is sent early; batches per layer.
const BATCH: usize = 256;
const BATCH_BYTES: usize = 256 << 10;
const AHEAD: usize = 64;

/// Reads all layers, up to `threads` at once, and gives their members to `add` in order: the number of the
/// layer, and the member.
pub(crate) fn scan_layers(
    layers: &[Layer],
    limits: &Limits,
    threads: usize,
    add: &mut dyn FnMut(usize, Entry) -> Result<()>,
) -> Result<()> {
    type Batches = (Sender<Result<Vec<Entry>>>, Receiver<Result<Vec<Entry>>>);
    let channels: Vec<Batches> = layers.iter().map(|_| bounded(AHEAD)).collect();
    let (senders, receivers): (Vec<_>, Vec<_>) = channels.into_iter().unzip();
    let work = Mutex::new(layers.iter().zip(senders));
    let threads = threads.clamp(1, layers.len().max(1));
    // Layers that are begun and not yet added: what is read ahead of them is bounded.
    let (allow, allowed) = bounded(threads);
    for _ in 0..threads {
        let _ = allow.try_send(());
    }
    std::thread::scope(|scope| {
        threads::start(scope, threads, || {
            let (work, allowed) = (&work, allowed.clone());
            move || {
                while allowed.recv().is_ok() {
                    // In order, so that the layer that is waited for is always being read.
                    let Some((layer, sender)) = work.lock().next() else {
                        return;
                    };
                    if let Err(error) = scan_layer(layer, limits, &sender) {
                        let _ = sender.send(Err(error.within(&layer.name)));
                        return;
                    }
                }
            }
        })?;
        let mut added = Ok(());
        'layers: for (index, receiver) in receivers.iter().enumerate() {
            for batch in receiver {
                added = batch
                    .and_then(|batch| batch.into_iter().try_for_each(|entry| add(index, entry)));
                if added.is_err() {
                    break 'layers;
                }
            }
            let _ = allow.try_send(());
        }
        // Threads that wait for a layer or to send return now; the layers that are left are not begun.
        drop((allow, receivers));
        work.lock().by_ref().for_each(drop);
        added
    })
}

/// An error means that the layer is not sound; without a receiver it ends early.
fn scan_layer(layer: &Layer, limits: &Limits, sender: &Sender<Result<Vec<Entry>>>) -> Result<()> {
    let sum = Arc::new(Mutex::new(Some(DigestSum::new(&layer.digest)?)));
    let raw = layer.window.reader();
    let reader: Box<dyn Read + Send> = if layer.of_decompressed {
        let buffered = BufReader::with_capacity(128 << 10, raw);
        let decoded =
            decoder(layer.compression, buffered, limits.stream_bytes).map_err(from_read)?;
        let sum = Arc::clone(&sum);
        Box::new(Summed {
            inner: decoded,
            sum,
        })
    } else {
        let sum = Arc::clone(&sum);
        let buffered = BufReader::with_capacity(128 << 10, Summed { inner: raw, sum });
        decoder(layer.compression, buffered, limits.stream_bytes).map_err(from_read)?
    };
    let mut input = StreamInput::new(reader, None);
    let mut members = Reader::new(&mut input, limits);
    let mut batch = Vec::new();
    let mut bytes = 0;
    while let Some(entry) = members.next()? {
        bytes += entry.memory_bytes();
        batch.push(entry);
        if batch.len() < BATCH && bytes < BATCH_BYTES {
            continue;
        }
        bytes = 0;
        if sender.send(Ok(std::mem::take(&mut batch))).is_err() {
            return Ok(());
        }
    }
    input.drain()?;
    drop(input);
    let sum = sum.lock().take();
    sum.expect("it is taken once").check(&layer.digest)?;
    let _ = sender.send(Ok(batch));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_may_be_listed_again_as_long_as_that_is_not_what_the_image_consists_of() {
        const MIB: u64 = 1 << 20;
        // The bytes of all different layers, one that is listed again, and how often.
        for (other, again, times, is_allowed) in [
            (0, 100, 4000, true),
            (0, MIB, 9, true),
            (0, MIB, 10, false),
            (0, 1000 * MIB, 9, true),
            (0, 1000 * MIB, 4000, false),
            (1000 * MIB, MIB, 4000, true),
        ] {
            let layers = (0..times).map(|_| ("again", again));
            let checked = check_repeated(layers.chain([("other", other)]));
            assert_eq!(checked.is_ok(), is_allowed, "{other} {again} {times}");
        }
    }
}
