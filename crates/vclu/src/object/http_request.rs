//! HttpRequest: sends an HTTP request and receives the response, while scripts continue.
//!
//! `OnResponse` is fired in each case: after a request that failed, `StatusCode` is 0, and the log has the reason.

use std::time::Duration;

use tokio::task::AbortHandle;

use super::{
    CluObject, Feature, FeatureAccess, ObjectClass, ObjectContext, ObjectError, ObjectEvent, ObjectMethod, ValueKind,
    flag,
};
use crate::http::{BodyKind, HttpCall, HttpResult, encode_query, header_table, headers_of};
use crate::log::{LogSeverity, count};
use crate::value::LuaValue;

pub(crate) static CLASS: ObjectClass = ObjectClass {
    number: 121,
    name: "HttpRequest",
    version: 1,
    features: &[
        Feature::text(0, "Host").settable(),
        Feature::text(1, "Path").settable(),
        Feature::new(2, "Query", ValueKind::Any, FeatureAccess::GetSet),
        Feature::text(3, "Method").settable(),
        Feature::number(4, "Timeout").unit("s").range(1.0, 60.0).settable(),
        Feature::number(5, "RequestType").choices(BodyKind::CHOICES).settable(),
        Feature::number(6, "ResponseType").choices(BodyKind::CHOICES).settable(),
        Feature::new(7, "RequestHeaders", ValueKind::Any, FeatureAccess::GetSet),
        Feature::new(8, "RequestBody", ValueKind::Any, FeatureAccess::GetSet),
        Feature::new(9, "ResponseHeaders", ValueKind::Any, FeatureAccess::Get),
        Feature::new(10, "ResponseBody", ValueKind::Any, FeatureAccess::Get),
        Feature::number(11, "StatusCode"),
        Feature::number(12, "IsActive").choices(super::OFF_ON),
    ],
    methods: &[
        ObjectMethod::new(0, "SendRequest"),
        ObjectMethod::new(1, "AbortRequest"),
        ObjectMethod::new(2, "Clear"),
    ],
    events: &[ObjectEvent::new(0, "OnRequestSent"), ObjectEvent::new(1, "OnResponse")],
    create: |_| Box::new(HttpRequest::default()),
};

#[derive(Default)]
struct HttpRequest {
    host: String,
    path: String,
    query: LuaValue,
    /// Empty is `GET`.
    method: String,
    timeout_s: Option<f64>,
    request_kind: BodyKind,
    /// Of the next response; `None` follows its header `Content-Type`.
    response_kind: BodyKind,
    request_headers: LuaValue,
    request_body: LuaValue,
    response: ReceivedResponse,
    active: Option<RunningRequest>,
}

#[derive(Default)]
struct ReceivedResponse {
    kind: BodyKind,
    headers: LuaValue,
    body: LuaValue,
    status: f64,
}

struct RunningRequest {
    result: HttpResult,
    task: AbortHandle,
}

/// The request ends with its object.
impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The parts of `Host`: `host`, `http://host:port` or `https://host`.
fn parse_host(text: &str) -> Option<(bool, String, u16)> {
    let (has_tls, rest) = match text.trim().split_once("://") {
        Some(("http", rest)) => (false, rest),
        Some(("https", rest)) => (true, rest),
        Some(_) => return None,
        None => (false, text.trim()),
    };
    let rest = rest.trim_end_matches('/');
    let (host, port) = match rest.strip_prefix('[').and_then(|inside| inside.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, Some(port.strip_prefix(':')?)),
        None => rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port))),
    };
    let default = if has_tls { 443 } else { 80 };
    let port = port.map_or(Some(default), |port| port.parse().ok()).filter(|port| *port != 0)?;
    let is_valid = !host.is_empty() && !host.contains(['/', '@', '?', '#', ' ']);
    is_valid.then(|| (has_tls, host.to_string(), port))
}

impl HttpRequest {
    fn build(&self) -> Result<HttpCall, String> {
        let wrong = || "Host must have the form HOST, http://HOST:PORT or https://HOST".to_string();
        let (has_tls, host, port) = parse_host(&self.host).ok_or_else(wrong)?;
        let mut headers = headers_of(&self.request_headers)?;
        let body = self.request_kind.encode(&self.request_body, &mut headers);
        let query = encode_query(&self.query);
        let mut target = if self.path.starts_with('/') { self.path.clone() } else { format!("/{}", self.path) };
        if !query.is_empty() {
            target.push(if target.contains('?') { '&' } else { '?' });
            target.push_str(&query);
        }
        if target.parse::<hyper::Uri>().is_err() {
            return Err("Path and Query must be a valid URL: other characters are written as %20".into());
        }
        let method = if self.method.is_empty() { "GET".into() } else { self.method.to_ascii_uppercase() };
        if hyper::Method::from_bytes(method.as_bytes()).is_err() {
            return Err(format!("\"{method}\" is not a method of HTTP"));
        }
        let time_max = Duration::from_secs_f64(self.timeout_s.unwrap_or(10.0));
        Ok(HttpCall { has_tls, host, port, method, target, headers, body, time_max })
    }

    fn send(&mut self, context: &mut ObjectContext<'_>) -> Result<(), ObjectError> {
        if self.active.is_some() {
            return Err(ObjectError::Failed { reason: "the last request has no response yet".into() });
        }
        let call = self.build().map_err(|reason| ObjectError::Failed { reason })?;
        let waker = context.waker();
        let sent = context.world.network.http.send(call, waker);
        let (result, task) = sent.map_err(|error| ObjectError::Failed { reason: error.to_string() })?;
        count(&context.world.log.counters.http_sent);
        self.response = ReceivedResponse::default();
        self.active = Some(RunningRequest { result, task });
        context.fire(0);
        Ok(())
    }
}

impl CluObject for HttpRequest {
    fn get(&self, index: u16, _context: &mut ObjectContext<'_>) -> LuaValue {
        match index {
            0 => self.host.as_str().into(),
            1 => self.path.as_str().into(),
            2 => self.query.clone(),
            3 if self.method.is_empty() => "GET".into(),
            3 => self.method.as_str().into(),
            4 => self.timeout_s.unwrap_or(10.0).into(),
            5 => self.request_kind.number().into(),
            6 if self.response_kind == BodyKind::None => self.response.kind.number().into(),
            6 => self.response_kind.number().into(),
            7 => self.request_headers.clone(),
            8 => self.request_body.clone(),
            9 => self.response.headers.clone(),
            10 => self.response.body.clone(),
            11 => self.response.status.into(),
            _ => flag(self.active.is_some()),
        }
    }

    fn set(&mut self, index: u16, value: LuaValue, _context: &mut ObjectContext<'_>) -> Result<(), ObjectError> {
        match (index, value) {
            (0, LuaValue::Text(host)) => self.host = host,
            (1, LuaValue::Text(path)) => self.path = path,
            (2, value) => self.query = value,
            (3, LuaValue::Text(method)) => self.method = method,
            (4, value) => self.timeout_s = value.as_number(),
            (5, value) => self.request_kind = BodyKind::from_number(value.as_number().unwrap_or_default()),
            (6, value) => self.response_kind = BodyKind::from_number(value.as_number().unwrap_or_default()),
            (7, value) => {
                headers_of(&value).map_err(|reason| ObjectError::Failed { reason })?;
                self.request_headers = value;
            }
            (_, value) => self.request_body = value,
        }
        Ok(())
    }

    fn call(
        &mut self,
        index: u16,
        _arguments: &[LuaValue],
        context: &mut ObjectContext<'_>,
    ) -> Result<LuaValue, ObjectError> {
        match index {
            0 => self.send(context)?,
            1 => self.active = None,
            _ => {
                (self.query, self.request_headers, self.request_body) = (LuaValue::Nil, LuaValue::Nil, LuaValue::Nil);
                self.response = ReceivedResponse::default();
            }
        }
        Ok(LuaValue::Nil)
    }

    fn woken(&mut self, context: &mut ObjectContext<'_>) {
        let Some(result) = self.active.as_ref().and_then(|active| active.result.lock().take()) else { return };
        self.active = None;
        match result {
            Ok(reply) => {
                let named = BodyKind::from_headers(&reply.headers);
                let kind = if self.response_kind == BodyKind::None { named } else { self.response_kind };
                self.response = ReceivedResponse {
                    kind,
                    headers: header_table(&reply.headers),
                    body: kind.parse(&reply.body),
                    status: f64::from(reply.status),
                };
            }
            Err(reason) => {
                count(&context.world.log.counters.http_failed);
                context.log(LogSeverity::Warning, &format!("the request failed: {reason}"));
            }
        }
        context.fire(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_has_a_scheme_and_a_port_or_their_defaults() {
        assert_eq!(parse_host("example.org"), Some((false, "example.org".into(), 80)));
        assert_eq!(parse_host("https://example.org/"), Some((true, "example.org".into(), 443)));
        assert_eq!(parse_host("http://10.0.0.2:8080"), Some((false, "10.0.0.2".into(), 8080)));
        assert_eq!(parse_host("http://[::1]:81"), Some((false, "::1".into(), 81)));
        for wrong in ["", "ftp://a", "http://", "a:0", "a:x", "http://u@h", "h/x"] {
            assert_eq!(parse_host(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_request_is_built_from_the_features() {
        let mut request = HttpRequest { host: "h".into(), path: "a/b".into(), ..HttpRequest::default() };
        request.query = LuaValue::Table(vec![("x y".into(), 1.0.into())]);
        request.request_kind = BodyKind::Json;
        request.request_body = LuaValue::list([1.0.into()]);

        let call = request.build().unwrap();
        assert_eq!((call.method.as_str(), call.target.as_str()), ("GET", "/a/b?x%20y=1"));
        assert_eq!(call.headers, [("content-type".into(), "application/json".into())]);
        assert_eq!(call.body, b"[1]");

        request.path = "a b".into();
        assert!(request.build().is_err());
    }
}
