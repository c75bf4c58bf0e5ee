//! How fast an object streams, beside what `object_store` gets with as many bytes in flight: prints both, and
//! their ratio, for several rounds.
//!
//! ```text
//! cargo run --release -p throughline-remote --example stream -- URL [CHUNK_KIB [REQUEST_KIB]]
//! ```
//!
//! Each round reads the whole object once in each way, in calls of 8 MiB and without a cache on disk, then
//! with a new one. The URL is one of s3://, with the environment for it, https:// or http://.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore, ObjectStoreExt};
use throughline_image::ReadAt;
use throughline_remote::{Object, Options};

const CALL_BYTES: usize = 8 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("the URL of an object is needed")?;
    let mut number = |default: u32| -> Result<u32, Box<dyn Error>> {
        Ok(arguments.next().map_or(Ok(default), |text| text.parse())? << 10)
    };
    let mut options = Options::default();
    options.chunk_bytes = number(1024)?;
    options.request_bytes = number(4096)?;
    let _ = rustls::crypto::ring::default_provider().install_default();
    for round in 0..5 {
        let theirs = theirs(&url, &options)?;
        options.cache = None;
        let ours = ours(&url, &options)?;
        let dir = tempfile::tempdir()?;
        options.cache = Some(dir.path().to_owned());
        let cached = self::ours(&url, &options)?;
        println!(
            "round {round}: object_store {theirs:.0} MiB/s; ours {ours:.0} ({:.2}), filling a cache {cached:.0} \
             ({:.2})",
            ours / theirs,
            cached / theirs
        );
    }
    Ok(())
}

fn ours(url: &str, options: &Options) -> Result<f64, Box<dyn Error>> {
    let object = Object::open(&url.parse()?, options)?;
    let begin = Instant::now();
    let (mut at, len) = (0, object.len_bytes());
    let mut buffer = vec![0; CALL_BYTES];
    while at < len {
        let now = (len - at).min(CALL_BYTES as u64);
        object.read_exact_at(&mut buffer[..now as usize], at)?;
        at += now;
    }
    Ok(rate(len, begin))
}

/// As many requests as are in flight on our side, in order.
fn theirs(url: &str, options: &Options) -> Result<f64, Box<dyn Error>> {
    let url = url::Url::parse(url)?;
    let path = Path::from_url_path(url.path())?;
    let store: Arc<dyn ObjectStore> = match url.scheme() {
        "s3" => Arc::new(AmazonS3Builder::from_env().with_url(url.as_str()).build()?),
        _ => {
            let client = ClientOptions::new().with_allow_http(true);
            let builder = HttpBuilder::new().with_client_options(client);
            Arc::new(
                builder
                    .with_url(&url[..url::Position::BeforePath])
                    .build()?,
            )
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let request = u64::from(options.request_bytes);
    let in_flight = (options.memory_bytes / 2 / request).min(options.in_flight as u64) as usize;
    runtime.block_on(async {
        let len = store.head(&path).await?.size;
        let begin = Instant::now();
        let ranges =
            (0..len.div_ceil(request)).map(|at| at * request..((at + 1) * request).min(len));
        let requests = ranges.map(|range| {
            let (store, path) = (Arc::clone(&store), path.clone());
            async move { store.get_range(&path, range).await }
        });
        let mut replies = futures_util::stream::iter(requests).buffered(in_flight);
        let mut read = 0;
        while let Some(reply) = replies.next().await {
            read += reply?.len() as u64;
        }
        assert_eq!(read, len);
        Ok(rate(len, begin))
    })
}

fn rate(len: u64, begin: Instant) -> f64 {
    len as f64 / f64::from(1 << 20) / begin.elapsed().as_secs_f64()
}
