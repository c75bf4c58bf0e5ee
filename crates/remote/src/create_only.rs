//! [`CreateOnly`]: uploads in parts that do not replace an object.
//!
//! S3 completes an upload in parts only if there is no object of its name, if the request says
//! `If-None-Match: *`. `object_store` 0.14 sends that with copies alone. So the header is put into the
//! request on its way. It is not signed, as that of copies is not.

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService,
};

use crate::client::Connector;

/// Makes such clients.
#[derive(Debug)]
pub(crate) struct CreateOnly(pub(crate) Connector);

impl HttpConnector for CreateOnly {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = self.0.connect(options)?;
        Ok(HttpClient::new(Completing(client)))
    }
}

#[derive(Debug)]
struct Completing(HttpClient);

#[async_trait]
impl HttpService for Completing {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let query = request.uri().query().unwrap_or_default();
        let is_of_upload = query.split('&').any(|part| part.starts_with("uploadId="));
        if is_of_upload && request.method().as_str() == "POST" {
            let any = ureq::http::HeaderValue::from_static("*");
            request.headers_mut().insert("if-none-match", any);
        }
        self.0.execute(request).await
    }
}
