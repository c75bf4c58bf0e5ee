//! The store that a URL names, with the credentials and settings of the environment, as `object_store` reads
//! them.

use std::sync::Arc;
use std::time::Duration;

use object_store::ClientConfigKey::{self, ConnectTimeout};
use object_store::ClientOptions;
use object_store::ObjectStore;
use object_store::RetryConfig;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzure, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorage, GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::multipart::MultipartStore;
use object_store::path::Path;

use crate::client::Connector;
use crate::create_only::CreateOnly;
use crate::failure::{Attempt, Failure};
use crate::name::ObjectName;
use crate::secrets;

/// A store, and the object in it.
pub(crate) struct Place {
    pub(crate) store: Arc<dyn ObjectStore>,
    /// The same, for uploads in parts; `None` if it takes none.
    pub(crate) in_parts: Option<Arc<dyn MultipartStore>>,
    pub(crate) path: Path,
    /// Where it is, without credentials: the same for the same object.
    pub(crate) key: String,
}

/// What an upload in parts does with an object that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uploads {
    Replace,
    /// It fails, if the store can tell when the upload is completed: S3 can.
    Create,
}

/// Requests are repeated by [`crate::fetch`], which also knows what has arrived.
fn once() -> RetryConfig {
    RetryConfig {
        max_retries: 0,
        ..RetryConfig::default()
    }
}

/// How long a connection may take to be made.
fn connecting(patience: Duration) -> (ClientConfigKey, String) {
    let connect_ms = (patience / 3).as_millis().clamp(50, 10_000);
    (ConnectTimeout, format!("{connect_ms}ms"))
}

impl Place {
    /// # Errors
    /// If the settings are not complete, or there are secrets for URLs that are not in order.
    pub(crate) fn of(
        name: &ObjectName,
        patience: Duration,
        uploads: Uploads,
    ) -> Result<Place, Failure> {
        let built = Place::build(&secrets::whole(name)?, patience, uploads);
        built.map_err(|error| match Attempt::from(error) {
            Attempt::Again(text) => Failure::Refused(text),
            Attempt::Final(failure) => failure,
        })
    }

    fn build(
        name: &ObjectName,
        patience: Duration,
        uploads: Uploads,
    ) -> object_store::Result<Place> {
        let url = name.url();
        let path = Path::from_url_path(url.path())?;
        let (key, value) = connecting(patience);
        let mut endpoint = None;
        let mut in_parts: Option<Arc<dyn MultipartStore>> = None;
        let store: Arc<dyn ObjectStore> = match url.scheme() {
            "s3" => {
                let mut builder = AmazonS3Builder::from_env().with_url(url.as_str());
                builder = builder.with_config(AmazonS3ConfigKey::Client(key), value);
                endpoint = builder
                    .get_config_value(&AmazonS3ConfigKey::S3Endpoint)
                    .or_else(|| builder.get_config_value(&AmazonS3ConfigKey::Endpoint));
                let connector = Connector::new(&path);
                builder = match uploads {
                    Uploads::Create => builder.with_http_connector(CreateOnly(connector)),
                    Uploads::Replace => builder.with_http_connector(connector),
                };
                let store = Arc::new(builder.with_retry(once()).build()?);
                in_parts = Some(Arc::<AmazonS3>::clone(&store));
                store
            }
            "gs" => {
                let mut builder = GoogleCloudStorageBuilder::from_env().with_url(url.as_str());
                builder = builder.with_config(GoogleConfigKey::Client(key), value);
                endpoint = builder.get_config_value(&GoogleConfigKey::BaseUrl);
                builder = builder.with_http_connector(Connector::new(&path));
                let store = Arc::new(builder.with_retry(once()).build()?);
                in_parts = Some(Arc::<GoogleCloudStorage>::clone(&store));
                store
            }
            "az" => {
                let mut builder = MicrosoftAzureBuilder::from_env().with_url(url.as_str());
                builder = builder.with_config(AzureConfigKey::Client(key), value);
                let account = builder.get_config_value(&AzureConfigKey::AccountName);
                let at = builder.get_config_value(&AzureConfigKey::Endpoint);
                endpoint = Some(format!("{account:?} {at:?}"));
                builder = builder.with_http_connector(Connector::new(&path));
                let store = Arc::new(builder.with_retry(once()).build()?);
                in_parts = Some(Arc::<MicrosoftAzure>::clone(&store));
                store
            }
            scheme => {
                let mut base = url.clone();
                base.set_path("/");
                // The client sends them in a header. Neither fails for a URL with a host.
                let _ = base.set_username("");
                let _ = base.set_password(None);
                let mut client = ClientOptions::new().with_allow_http(scheme == "http");
                client = client.with_config(key, value);
                let builder = HttpBuilder::new().with_url(base.as_str());
                let builder = builder.with_client_options(client);
                let builder = builder.with_http_connector(Connector::of(url, &path));
                Arc::new(builder.with_retry(once()).build()?)
            }
        };
        Ok(Place {
            store,
            in_parts,
            path,
            key: format!("{name}\n{}", endpoint.unwrap_or_default()),
        })
    }
}
