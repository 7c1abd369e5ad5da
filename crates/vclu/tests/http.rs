//! HTTP with Python: its client asks the listeners of a CLU, and its server answers the requests of a CLU.

#[expect(dead_code, reason = "each test program uses a part")]
mod live;
#[expect(dead_code, reason = "each test program uses a part")]
mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;

use fodo_vclu::limit::{HTTP_BODY_BYTES_MAX, HTTP_CONNECTIONS_MAX, HTTP_QUEUED_MAX};
use fodo_vclu::{CLASSES, VirtualClu, object_interface};

use live::{LiveClu, Program, STEP_TIME_MAX, make_certificates, output_of};

/// Answers with what it received, and with the number of the listener.
const LISTENERS: &str = r#"
function listen(name, path)
  local listener = OBJECT:new(120, name)
  _G[name] = listener
  listener:add_event(0, function()
    listener:set(6, 2)
    listener:set(8, {listener = name, path = listener:get(0), method = listener:get(1), query = listener:get(2),
      type = listener:get(3), body = listener:get(5), agent = listener:get(4)["x-agent"]})
    listener:set(7, {["X-Room"] = "hall"})
    listener:execute(0)
  end)
  CLU0001:add_event(0, function() if path then listener:set(0, path) end end)
end
"#;

fn clu(objects: &str) -> LiveClu {
    LiveClu::start(objects, |_, _| {})
}

fn address(clu: &LiveClu) -> SocketAddr {
    // The handlers of OnInit have set the paths when a later request is answered.
    clu.eval("checkAlive()");
    clu.clu.http_address().expect("the server has not started")
}

/// A request by Python's http.client. Returns the status and the body, and the header X-Room.
fn request(server: SocketAddr, method: &str, target: &str, content_type: &str, body: &str) -> String {
    let script = "import http.client, sys\n\
        host, method, target, kind, body = sys.argv[1:]\n\
        connection = http.client.HTTPConnection(host, timeout=30)\n\
        headers = {'Content-Type': kind} if kind else {}\n\
        connection.request(method, target, body or None, {**headers, 'X-Agent': 'test'})\n\
        response = connection.getresponse()\n\
        print(response.status, response.getheader('X-Room'), response.read().decode())";
    let mut command = Command::new("python3");
    command.args(["-c", script, &server.to_string(), method, target, content_type, body]);
    output_of(&mut command).trim_end().to_string()
}

/// Sends bytes, and returns all that the server sends until it closes the connection.
fn exchange(server: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
    stream.write_all(request).unwrap();
    let mut reply = Vec::new();
    // The server may reset the connection after its reply, when it has not read everything.
    let _ = stream.read_to_end(&mut reply);
    String::from_utf8_lossy(&reply).into_owned()
}

#[test]
fn listeners_on_one_port_receive_the_requests_with_their_paths() {
    let clu = clu(&format!("{LISTENERS} listen(\"A\", \"/a\") listen(\"B\", \"b\") listen(\"ALL\")"));
    let server = address(&clu);

    let json = request(server, "POST", "/a?x=1&y=a%20b", "application/json", r#"{"list":[1,2]}"#);
    let expected = r#"{"agent":"test","body":{"list":[1,2]},"listener":"A","method":"POST","path":"/a","query":{"x":"1","y":"a b"},"type":2}"#;
    assert_eq!(json, format!("200 hall {expected}"));
    let form = request(server, "PUT", "/b", "application/x-www-form-urlencoded", "on=1&name=a+b");
    assert!(form.contains(r#""body":{"name":"a b","on":"1"},"listener":"B","method":"PUT","path":"/b""#), "{form}");
    let text = request(server, "DELETE", "/other", "text/plain", "hello");
    assert!(text.contains(r#""body":"hello","listener":"ALL","method":"DELETE","path":"/other""#), "{text}");
    assert_eq!(clu.clu.counts().http_requests, 3);
}

#[test]
fn a_second_listener_with_the_same_path_is_refused_and_one_more_without_a_path_is_reported() {
    let clu = clu(&format!("{LISTENERS} listen(\"A\", \"/a\") listen(\"B\", \"/b\") listen(\"ALL\") listen(\"NONE\")"));
    let server = address(&clu);

    clu.eval("B:set(0, \"a\")");
    assert!(clu.log_text().contains("another HttpListener has the Path /a, and"), "{}", clu.log_text());
    assert_eq!(clu.eval("B:get(0)"), "/b");
    for (path, listener) in [("/a", "A"), ("/b", "B"), ("/c", "ALL")] {
        let answer = request(server, "GET", path, "", "");
        assert!(answer.contains(&format!(r#""listener":"{listener}""#)), "{answer}");
    }
    let is_reported =
        |clu: &VirtualClu| clu.log().iter().any(|entry| entry.text.contains("NONE: receives no requests"));
    clu.wait_until(is_reported);
    assert_eq!(clu.log_text().matches("receives no requests").count(), 1, "{}", clu.log_text());

    clu.eval("A:set(0, \"/x\")");
    clu.eval("B:set(0, \"/a\")");
    assert_eq!(clu.eval("B:get(0)"), "/a");

    // The listeners of the scripts before are gone.
    clu.reset();
    assert!(request(address(&clu), "GET", "/a", "", "").contains(r#""listener":"A""#), "{}", clu.log_text());
}

#[test]
fn a_request_without_a_listener_gets_404() {
    let clu = clu(&format!("{LISTENERS} listen(\"A\", \"/a\")"));
    let server = address(&clu);

    assert_eq!(request(server, "GET", "/b", "", ""), "404 None Not Found");
    assert_eq!(clu.clu.counts().http_refused, 1);
}

#[test]
fn a_request_that_is_not_answered_gets_504_and_the_next_one_is_served() {
    let clu = clu("L = OBJECT:new(120, \"L\") seen = 0 \
         L:add_event(0, function() seen = seen + 1 if seen > 1 then L:set(8, \"late\") L:set(9, 203) L:execute(0) end end)");
    let server = address(&clu);

    assert!(request(server, "GET", "/", "", "").starts_with("504 "));
    assert_eq!(request(server, "GET", "/", "", ""), "203 None late");

    assert_eq!(clu.clu.counts().http_late, 1);
    assert!(clu.log_text().contains("no SendResponse in time for GET /"), "{}", clu.log_text());
    clu.eval("L:execute(0)");
    assert!(clu.log_text().contains("no request waits for a response"), "{}", clu.log_text());
}

#[test]
fn a_handler_can_wait_and_other_requests_are_answered_meanwhile() {
    let clu = clu(&format!(
        "{LISTENERS} listen(\"FAST\", \"/fast\") SLOW = OBJECT:new(120, \"SLOW\") \
         SLOW:add_event(0, function() while not go do SYSTEM.Wait(0, 20) end \
         SLOW:set(8, SLOW:get(5)) SLOW:execute(0) end) \
         CLU0001:add_event(0, function() SLOW:set(0, \"/slow\") end)"
    ));
    let server = address(&clu);

    let slow = thread::spawn(move || request(server, "POST", "/slow", "text/plain", "body"));
    clu.wait_for("SLOW:get(1) == \"POST\"");
    assert!(request(server, "GET", "/fast", "", "").starts_with("200 hall"));
    clu.eval("(function() go = true end)()");

    assert_eq!(slow.join().unwrap(), "200 None body");
}

#[test]
fn requests_that_are_too_long_or_too_many_are_refused_and_counted() {
    let clu = clu("L = OBJECT:new(120, \"L\")");
    let server = address(&clu);

    let head = format!("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", HTTP_BODY_BYTES_MAX + 1);
    let body = "x".repeat(HTTP_BODY_BYTES_MAX + 1);
    assert!(exchange(server, format!("{head}{body}").as_bytes()).starts_with("HTTP/1.1 413 "));
    assert_eq!(clu.clu.counts().http_refused, 1);

    // One is being handled, and others wait.
    let send = |number: usize| {
        let mut stream = TcpStream::connect(server).unwrap();
        stream.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
        stream.write_all(format!("GET /{number} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).unwrap();
        stream
    };
    let mut streams = vec![send(0)];
    clu.wait_for("L:get(1) == \"GET\"");
    streams.extend((0..=HTTP_QUEUED_MAX).map(send));
    let mut statuses: Vec<String> = streams
        .iter_mut()
        .map(|stream| {
            let mut reply = String::new();
            stream.read_to_string(&mut reply).unwrap();
            reply.split(' ').nth(1).unwrap().to_string()
        })
        .collect();
    statuses.sort();

    assert_eq!(statuses[..2], ["503", "504"]);
    assert_eq!(statuses[HTTP_QUEUED_MAX + 1], "504");
    let counts = clu.clu.counts();
    assert_eq!((counts.http_refused, counts.http_late), (2, 1 + HTTP_QUEUED_MAX as u64));
}

#[test]
fn idle_connections_take_only_the_places_that_are_limited() {
    let clu = clu(&format!("{LISTENERS} listen(\"A\", \"/a\")"));
    let server = address(&clu);

    let idle: Vec<TcpStream> = (0..HTTP_CONNECTIONS_MAX).map(|_| TcpStream::connect(server).unwrap()).collect();
    assert_eq!(exchange(server, b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n"), "");
    assert_eq!(clu.clu.counts().http_refused, 1);

    // The time limit for the headers frees them.
    for mut stream in idle {
        stream.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).unwrap();
    }
    assert!(request(server, "GET", "/a", "", "").starts_with("200 hall"));
}

/// A server that repeats requests as JSON; `/missing` is 404, `/late` sends nothing.
const SERVER: &str = r#"
import http.server, json, ssl, sys, threading

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length).decode()
        if self.path == "/late":
            threading.Event().wait(60)
        reply = json.dumps({"method": self.command, "path": self.path, "body": body,
                            "type": self.headers["content-type"], "key": self.headers["x-key"]}).encode()
        self.send_response(404 if self.path == "/missing" else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    do_POST = do_PUT = do_GET

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
if len(sys.argv) > 1:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1], sys.argv[2])
    server.socket = context.wrap_socket(server.socket, server_side=True)
print("port", server.server_port, flush=True)
server.serve_forever()
"#;

fn server(certificates: Option<&Path>) -> (Program, String) {
    let mut command = Command::new("python3");
    command.args(["-c", SERVER]);
    if let Some(folder) = certificates {
        command.args([folder.join("server.crt"), folder.join("server.key")]);
    }
    let program = Program::start(&mut command);
    let line = program.find_line(|line| line.starts_with("port ")).expect("the server has ended");
    (program, line.replace("port ", ""))
}

const REQUEST: &str = r#"
R = OBJECT:new(121, "R")
R:add_event(0, function() fired = fired .. "sent " end)
R:add_event(1, function() fired = fired .. R:get(11) .. " " end)
"#;

#[test]
fn a_script_sends_requests_and_reads_the_responses() {
    let (_server, port) = server(None);
    let clu = clu(REQUEST);

    let get = format!("R:set(0, \"http://127.0.0.1:{port}\") R:set(1, \"/state\") R:set(2, {{room = \"a b\"}})");
    clu.eval(&format!("(function() {get} R:execute(0) end)()"));
    assert_eq!(clu.eval("R:get(12)"), "1");
    clu.wait_for("R:get(12) == 0 and fired == \"sent 200 \"");
    assert_eq!(clu.eval("R:get(10).method .. R:get(10).path"), "GET/state?room=a%20b");
    assert_eq!(clu.eval("R:get(9)[\"content-type\"] .. R:get(6)"), "application/json2");

    clu.eval(
        "(function() fired = \"\" R:execute(2) R:set(1, \"missing\") R:set(3, \"post\") R:set(5, 2) R:set(8, {on = true}) \
         R:set(7, \"X-Key: 7\") R:set(6, 1) R:execute(0) end)()",
    );
    clu.wait_for("fired == \"sent 404 \"");
    let text = clu.eval("R:get(10)");
    assert!(text.contains(r#""method": "POST""#) && text.contains(r#""body": "{\"on\":true}""#), "{text}");
    assert!(text.contains(r#""type": "application/json", "key": "7""#), "{text}");
}

#[test]
fn a_request_that_fails_fires_its_event_with_status_0() {
    let (_server, port) = server(None);
    let closing = closing_server();
    let clu = clu(REQUEST);

    clu.eval(&format!("(function() R:set(0, \"127.0.0.1:{}\") R:execute(0) end)()", closing.port()));
    clu.wait_for("fired == \"sent 0 \"");
    assert!(clu.log_text().contains("the request failed: "), "{}", clu.log_text());

    let late = format!("R:set(0, \"127.0.0.1:{port}\") R:set(1, \"/late\") R:set(4, 1)");
    clu.eval(&format!("(function() fired = \"\" {late} R:execute(0) end)()"));
    clu.wait_for("fired == \"sent 0 \"");
    assert!(clu.log_text().contains("no response within 1 s"), "{}", clu.log_text());

    clu.eval("(function() fired = \"\" R:set(4, 60) R:execute(0) end)()");
    clu.eval("R:execute(0)");
    assert!(clu.log_text().contains("the last request has no response yet"), "{}", clu.log_text());
    clu.eval("R:execute(1)");
    assert_eq!(clu.eval("R:get(12)"), "0");
    clu.eval("(function() R:set(1, \"/\") R:execute(0) end)()");
    clu.wait_for("fired == \"sent sent 200 \"");
    assert_eq!((clu.clu.counts().http_sent, clu.clu.counts().http_failed), (4, 2));
}

/// A server that closes each connection.
fn closing_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || listener.incoming().for_each(drop));
    address
}

#[test]
fn https_trusts_only_the_certificates_of_the_folder() {
    let folder = support::TestFolder::new();
    let own = folder.0.join("own");
    let other = folder.0.join("other");
    make_certificates(&own);
    make_certificates(&other);
    let (_server, port) = server(Some(&own));
    let start = |ca: &Path| {
        let ca = ca.join("ca.crt");
        LiveClu::start(REQUEST, |config, folder| {
            fs::copy(ca, folder.join("ca.crt")).unwrap();
            config.certificates = Some(folder);
        })
    };

    let trusting = start(&own);
    trusting.eval(&format!("(function() R:set(0, \"https://localhost:{port}\") R:execute(0) end)()"));
    trusting.wait_for("fired == \"sent 200 \"");

    let distrusting = start(&other);
    distrusting.eval(&format!("(function() R:set(0, \"https://127.0.0.1:{port}\") R:execute(0) end)()"));
    distrusting.wait_for("fired == \"sent 0 \"");
    assert!(distrusting.log_text().contains("invalid peer certificate"), "{}", distrusting.log_text());
}

#[test]
fn a_reset_keeps_the_port_and_answers_the_requests_that_wait() {
    let clu = clu("L = OBJECT:new(120, \"L\")");
    let server = address(&clu);

    let waiting = thread::spawn(move || request(server, "GET", "/", "", ""));
    clu.wait_for("L:get(1) == \"GET\"");
    clu.reset();

    assert_eq!(waiting.join().unwrap(), "503 None Service Unavailable");
    assert_eq!(clu.clu.http_address(), Some(server));
}

#[test]
fn the_interface_files_have_the_tables_of_the_objects() {
    let xml = |name: &str| {
        object_interface(CLASSES.into_iter().find(|class| class.name == name).expect("the class is missing"))
    };

    let listener = xml("HttpListener");
    assert!(listener.contains(r#"<object class="120" name="HttpListener" version="1">"#), "{listener}");
    assert!(
        listener.contains(r#"<feature index="5" name="RequestBody" type="str" get="true" set="false"/>"#),
        "{listener}"
    );
    assert!(listener.contains(r#"<method call="execute" index="0" name="SendResponse" return="void">"#), "{listener}");
    let request = xml("HttpRequest");
    assert!(
        request.contains(r#"<feature index="11" name="StatusCode" type="num" get="true" set="false"/>"#),
        "{request}"
    );
    assert!(request.contains(r#"<event address="1" name="OnResponse"/>"#), "{request}");
    let topic = xml("MqttTopic");
    assert!(topic.contains(r#"<method call="execute" index="10" name="Publish" return="void">"#), "{topic}");
    let clu = xml("CLU");
    assert!(clu.contains(r#"<feature index="20" name="MQTTUrl" type="str" get="true" set="true"/>"#), "{clu}");
    assert!(clu.contains(r#"<event address="20" name="OnMqttReceiveValue"/>"#), "{clu}");
}
