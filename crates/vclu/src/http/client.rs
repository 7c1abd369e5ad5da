//! One HTTP request of a script.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::Headers;
use crate::limit::HTTP_BODY_BYTES_MAX;
use crate::network::CertificateFolder;
use crate::tls::client_config;

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct HttpCall {
    pub has_tls: bool,
    pub host: String,
    pub port: u16,
    pub method: String,
    /// The path with the query.
    pub target: String,
    pub headers: Headers,
    pub body: Vec<u8>,
    /// From the start to the end of the response.
    pub time_max: Duration,
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpReply {
    pub status: u16,
    pub headers: Headers,
    pub body: Vec<u8>,
}

/// Sends the request on a connection of its own, and receives the response. Redirections are not followed.
pub(super) async fn request(
    call: HttpCall,
    certificates: CertificateFolder,
    requests: Arc<Semaphore>,
) -> Result<HttpReply, String> {
    let time_max = call.time_max;
    let exchange = async {
        // The semaphore is never closed.
        let _permit = requests.acquire().await.map_err(|error| error.to_string())?;
        let connected = TcpStream::connect((call.host.as_str(), call.port)).await;
        let stream = connected.map_err(|error| format!("{}:{}: {error}", call.host, call.port))?;
        // The request is written as a whole. Without this option it only arrives later.
        let _ = stream.set_nodelay(true);
        if !call.has_tls {
            return exchange(call, stream).await;
        }
        let config = client_config(certificates.as_deref())?;
        let name = ServerName::try_from(call.host.clone()).map_err(|error| error.to_string())?;
        let stream = TlsConnector::from(config).connect(name, stream).await.map_err(|error| format!("TLS: {error}"))?;
        exchange(call, stream).await
    };
    timeout(time_max, exchange).await.unwrap_or_else(|_| Err(format!("no response within {} s", time_max.as_secs())))
}

async fn exchange(
    call: HttpCall,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<HttpReply, String> {
    let failed = |error: hyper::Error| error.to_string();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let method = Method::from_bytes(call.method.as_bytes()).map_err(|error| error.to_string())?;
    let mut request = Request::builder().method(method).uri(&call.target);
    if !call.headers.iter().any(|(name, _)| name == "host") {
        request = request.header(HOST, host_header(&call));
    }
    for (name, value) in &call.headers {
        request = request.header(name, value);
    }
    let request = request.body(Full::new(Bytes::from(call.body))).map_err(|error| error.to_string())?;
    let receive = async {
        let response = sender.send_request(request).await.map_err(failed)?;
        let (parts, body) = response.into_parts();
        let headers = super::server::headers_of_message(&parts.headers);
        let body = Limited::new(body, HTTP_BODY_BYTES_MAX).collect().await.map_err(|error| error.to_string())?;
        Ok(HttpReply { status: parts.status.as_u16(), headers, body: body.to_bytes().to_vec() })
    };
    tokio::pin!(connection, receive);
    let mut is_open = true;
    loop {
        tokio::select! {
            reply = &mut receive => return reply,
            // The response may still be buffered when the connection has ended.
            _ = &mut connection, if is_open => is_open = false,
        }
    }
}

fn host_header(call: &HttpCall) -> String {
    let host = if call.host.contains(':') { format!("[{}]", call.host) } else { call.host.clone() };
    match (call.has_tls, call.port) {
        (false, 80) | (true, 443) => host,
        (_, port) => format!("{host}:{port}"),
    }
}
