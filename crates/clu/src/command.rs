//! The commands: one row each generates the type, its encoder and its decoder for both ends.
//!
//! A command is a sequence of fields with `:` between them, one of which is its keyword. Binary fields have a fixed size
//! and may contain any byte, also `:`; all others end at the next `:`, except for the last.

use std::fmt;
use std::net::Ipv4Addr;

use crate::cipher::{Block, SealedChallenge};
use crate::script::write_text;

macro_rules! commands {
    ($(#[$doc:meta])* $kind:ident {
        $($(#[doc = $row:literal])*
            $name:ident [$($head:ident: $head_type:ty),*] $keyword:literal [$($field:ident: $type:ty),*] $end:literal;)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "the rows and the types of their fields document it")]
        pub enum $kind<'a> {
            $($(#[doc = $row])* $name { $($head: $head_type,)* $($field: $type),* },)*
        }

        impl<'a> $kind<'a> {
            /// The keyword of every row.
            pub const KEYWORDS: &'static [&'static str] = &[$($keyword),*];

            /// Appends the command to `out`.
            pub fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $($kind::$name { $($head,)* $($field),* } => {
                        $($head.write(out); out.push(SEPARATOR);)*
                        out.extend_from_slice($keyword.as_bytes());
                        $(out.push(SEPARATOR); $field.write(out);)*
                        out.extend_from_slice($end.as_bytes());
                    })*
                }
            }

            /// Decodes a command; `None` if it matches no row. Line ends after it, blanks before it and fields that its
            /// row does not have are ignored, as by a CLU.
            pub fn decode(command: &'a [u8]) -> Option<$kind<'a>> {
                $({
                    let row = || {
                        let mut fields = CommandFields { rest: command, is_at_start: true };
                        $(let $head = fields.head::<$head_type>()?;)*
                        fields.keyword($keyword)?;
                        $(let $field = fields.field::<$type>()?;)*
                        fields.end()?;
                        Some($kind::$name { $($head,)* $($field),* })
                    };
                    if let Some(command) = row() {
                        return Some(command);
                    }
                })*
                None
            }
        }
    };
}

// The order of the rows is the order in which a decoder tries them: frequent ones first.
commands! {
    /// A request of a client.
    Request {
        /// Evaluates an expression of Lua.
        Execute [] "req" [client: Option<Ipv4Addr>, session: Session, script: &'a [u8]] "\r\n";
        /// Stops all objects and starts the scripts again.
        Reset [] "req_reset" [client: Option<Ipv4Addr>] "";
        /// Starts the TFTP server.
        StartTftp [] "req_start_ftp" [] "";
        /// Stops the TFTP server.
        StopTftp [] "req_stop_ftp" [] "";
        /// Gives the CLU with this serial number another address, with a network of 24 bits.
        SetAddress [] "req_set_clu_ip" [serial: Serial, address: Ipv4Addr, gateway: Ipv4Addr] "";
        /// Writes the measurements to a file.
        Measure [] "req_gen_measurements" [client: Option<Ipv4Addr>, session: Session, parameter: &'a [u8]] "\r\n";
        /// Confirms that the file with the measurements was read.
        MeasurementsRead [] "meas_file_download" [client: Option<Ipv4Addr>, session: Session, result: &'a [u8]] "";
        /// Requests a [`Reply::Discovered`] from every CLU; `iv` is for the reply. `challenge` is sealed with the key of
        /// the project.
        Discover [challenge: &'a SealedChallenge, iv: &'a Block] "req_discovery_clu" [client: Option<Ipv4Addr>] "";
        /// Gives the CLU another key. The reply is encrypted with that key. CLUs ignore `challenge`.
        SetKey [challenge: &'a SealedChallenge, iv: &'a Block] "req_set_key" [key: SecretKey<'a>] "";
    }
}

commands! {
    /// A reply of a CLU, or an update of a subscription.
    Reply {
        /// Confirms a request that has no other reply.
        Accepted [] "resp:OK" [] "";
        /// Refuses a request, or does not know it.
        Refused [] "resp:ERROR" [] "";
        /// The value of an expression as text; also, with [`Session::UPDATE`], the values of a subscription.
        Executed [] "resp" [clu: Option<Ipv4Addr>, session: Session, value: &'a [u8]] "";
        /// The scripts have started again.
        Reset [] "resp_reset" [clu: Option<Ipv4Addr>] "";
        /// The CLU with this serial number has this address.
        AddressSet [] "resp_set_clu_ip" [serial: Serial, address: Ipv4Addr] "";
        /// The file with the measurements is ready.
        Measured [] "meas_file_download" [clu: Option<Ipv4Addr>, session: Session, result: &'a [u8]] "";
        /// A CLU describes itself. `proof` is the hash of the challenge, sealed with the first key of the CLU and `iv`.
        Discovered [proof: &'a SealedChallenge, iv: &'a Block] "resp_discovery_clu" [serial: Serial, mac: MacAddress] "";
    }
}

const SEPARATOR: u8 = b':';

/// The number by which a client recognises the reply to its request.
///
/// ```
/// use fodo_clu::command::{Reply, Request, Session};
///
/// let mut command = Vec::new();
/// Request::Execute { client: None, session: Session(0xabcd), script: b"checkAlive()" }.encode(&mut command);
/// assert_eq!(command, b"req::0000abcd:checkAlive()\r\n");
///
/// let reply = Reply::decode(b"resp:10.0.0.2:0000abcd:0d0a1b2c");
/// assert!(matches!(reply, Some(Reply::Executed { session: Session(0xabcd), value: b"0d0a1b2c", .. })));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Session(pub u32);

impl Session {
    /// The session of the updates of subscriptions, which answer no request.
    pub const UPDATE: Session = Session(0);
}

/// The serial number of a CLU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Serial(pub u64);

impl Serial {
    /// Parses 1 to 16 hexadecimal digits, also after `0x`.
    pub fn parse(text: &str) -> Option<Serial> {
        hexadecimal(text.trim().as_bytes(), 16).map(Serial)
    }
}

/// At least 8 hexadecimal digits, as in commands.
impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// The hardware address of a CLU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MacAddress(pub [u8; 6]);

/// With colons, as in `config.txt`.
impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// A key in a command; its `Debug` form does not contain it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SecretKey<'a>(pub &'a Block);

impl fmt::Debug for SecretKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey { .. }")
    }
}

/// The fields of a command that is being decoded.
struct CommandFields<'a> {
    rest: &'a [u8],
    is_at_start: bool,
}

impl<'a> CommandFields<'a> {
    /// The next field before the keyword.
    fn head<T: FieldCodec<'a>>(&mut self) -> Option<T> {
        self.is_at_start = false;
        let value = T::read(&mut self.rest)?;
        self.rest = self.rest.strip_prefix(&[SEPARATOR])?;
        Some(value)
    }

    fn keyword(&mut self, keyword: &str) -> Option<()> {
        let rest = if self.is_at_start { self.rest.trim_ascii_start() } else { self.rest };
        self.rest = rest.strip_prefix(keyword.as_bytes())?;
        Some(())
    }

    /// The next field after the keyword.
    fn field<T: FieldCodec<'a>>(&mut self) -> Option<T> {
        self.rest = self.rest.strip_prefix(&[SEPARATOR])?;
        T::read(&mut self.rest)
    }

    /// Whether the last field, or the keyword without fields, has ended.
    fn end(&self) -> Option<()> {
        self.rest.first().is_none_or(|byte| *byte == SEPARATOR || byte.is_ascii_whitespace()).then_some(())
    }
}

/// How a field is written and read.
trait FieldCodec<'a>: Sized {
    /// Removes the field from the start of `rest`; `None` if it is invalid.
    fn read(rest: &mut &'a [u8]) -> Option<Self>;

    fn write(&self, out: &mut Vec<u8>);
}

/// A binary field.
impl<'a, const N: usize> FieldCodec<'a> for &'a [u8; N] {
    fn read(rest: &mut &'a [u8]) -> Option<Self> {
        let (field, after) = rest.split_first_chunk::<N>()?;
        *rest = after;
        Some(field)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self[..]);
    }
}

impl<'a> FieldCodec<'a> for SecretKey<'a> {
    fn read(rest: &mut &'a [u8]) -> Option<Self> {
        FieldCodec::read(rest).map(SecretKey)
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}

/// A script or a value: everything up to the line ends at the end.
impl<'a> FieldCodec<'a> for &'a [u8] {
    fn read(rest: &mut &'a [u8]) -> Option<Self> {
        let mut field = std::mem::take(rest);
        while let [before @ .., b'\r' | b'\n'] = field {
            field = before;
        }
        Some(field)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

/// The sender's address, which may be anything: CLUs accept an empty field. It is `None` unless it is an address.
impl<'a> FieldCodec<'a> for Option<Ipv4Addr> {
    fn read(rest: &mut &'a [u8]) -> Option<Self> {
        Some(text(take_text(rest)).and_then(|address| address.parse().ok()))
    }

    fn write(&self, out: &mut Vec<u8>) {
        if let Some(address) = self {
            address.write(out);
        }
    }
}

impl<'a> FieldCodec<'a> for Ipv4Addr {
    fn read(rest: &mut &'a [u8]) -> Option<Self> {
        text(take_text(rest))?.parse().ok()
    }

    fn write(&self, out: &mut Vec<u8>) {
        write_text(out, format_args!("{self}"));
    }
}

impl<'a> FieldCodec<'a> for Session {
    fn read(rest: &mut &'a [u8]) -> Option<Self> {
        hexadecimal(take_text(rest), 8).map(|number| Session(number as u32))
    }

    fn write(&self, out: &mut Vec<u8>) {
        write_text(out, format_args!("{:08x}", self.0));
    }
}

impl<'a> FieldCodec<'a> for Serial {
    fn read(rest: &mut &'a [u8]) -> Option<Self> {
        hexadecimal(take_text(rest), 16).map(Serial)
    }

    fn write(&self, out: &mut Vec<u8>) {
        write_text(out, format_args!("{self}"));
    }
}

impl<'a> FieldCodec<'a> for MacAddress {
    fn read(rest: &mut &'a [u8]) -> Option<Self> {
        let digits = take_text(rest);
        let mut address = [0; 6];
        if digits.len() != 2 * address.len() {
            return None;
        }
        for (byte, pair) in address.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = hexadecimal(pair, 2)? as u8;
        }
        Some(MacAddress(address))
    }

    fn write(&self, out: &mut Vec<u8>) {
        for byte in self.0 {
            write_text(out, format_args!("{byte:02x}"));
        }
    }
}

/// Removes the text before the next `:` from `rest`, and returns it without blanks and line ends around it.
fn take_text<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let end = rest.iter().position(|byte| *byte == SEPARATOR).unwrap_or(rest.len());
    let (field, after) = rest.split_at(end);
    *rest = after;
    field.trim_ascii()
}

fn text(field: &[u8]) -> Option<&str> {
    std::str::from_utf8(field).ok()
}

/// 1 to `n_max` hexadecimal digits, also after `0x`.
fn hexadecimal(field: &[u8], n_max: usize) -> Option<u64> {
    let digits = field.strip_prefix(b"0x").or_else(|| field.strip_prefix(b"0X")).unwrap_or(field);
    if digits.is_empty() || digits.len() > n_max {
        return None;
    }
    digits.iter().try_fold(0, |number: u64, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(number << 4 | u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out);
        out
    }

    #[test]
    fn each_text_command_has_its_form() {
        let (address, session, serial) = (Ipv4Addr::new(10, 72, 144, 1), Session(0x3649), Serial(0x0d0a1b2c));
        let client = Some(address);
        for (request, expected) in [
            (Request::Execute { client, session, script: b"a:b\n()" }, "req:10.72.144.1:00003649:a:b\n()\r\n"),
            (Request::Reset { client }, "req_reset:10.72.144.1"),
            (Request::StartTftp {}, "req_start_ftp"),
            (Request::StopTftp {}, "req_stop_ftp"),
            (
                Request::SetAddress { serial, address, gateway: Ipv4Addr::LOCALHOST },
                "req_set_clu_ip:0d0a1b2c:10.72.144.1:127.0.0.1",
            ),
            (
                Request::Measure { client, session, parameter: b"1345" },
                "req_gen_measurements:10.72.144.1:00003649:1345\r\n",
            ),
            (
                Request::MeasurementsRead { client, session, result: b"ok" },
                "meas_file_download:10.72.144.1:00003649:ok",
            ),
        ] {
            let command = encoded(|out| request.encode(out));
            assert_eq!(String::from_utf8_lossy(&command), expected);
            assert_eq!(Request::decode(&command), Some(request));
        }
        let clu = Some(address);
        for (reply, expected) in [
            (Reply::Accepted {}, "resp:OK"),
            (Reply::Refused {}, "resp:ERROR"),
            (Reply::Executed { clu, session, value: b"a:b" }, "resp:10.72.144.1:00003649:a:b"),
            (Reply::Reset { clu }, "resp_reset:10.72.144.1"),
            (Reply::AddressSet { serial, address }, "resp_set_clu_ip:0d0a1b2c:10.72.144.1"),
            (Reply::Measured { clu, session, result: b"ok" }, "meas_file_download:10.72.144.1:00003649:ok"),
        ] {
            let command = encoded(|out| reply.encode(out));
            assert_eq!(String::from_utf8_lossy(&command), expected);
            assert_eq!(Reply::decode(&command), Some(reply));
        }
    }

    #[test]
    fn requests_are_accepted_as_by_a_real_clu() {
        let execute = |client, session| Some(Request::Execute { client, session: Session(session), script: b"f()" });
        assert_eq!(Request::decode(b"req::1:f()"), execute(None, 1));
        assert_eq!(Request::decode(b"req:anything:0xAB:f()\r\n"), execute(None, 0xab));
        assert_eq!(Request::decode(b" \r\nreq:1.2.3.4:FFFFFFFF:f()\n"), execute(Some([1, 2, 3, 4].into()), u32::MAX));
        for start in ["req_start_ftp", "req_start_ftp\r\n", "req_start_ftp:", " req_start_ftp : x"] {
            assert_eq!(Request::decode(start.as_bytes()), Some(Request::StartTftp {}), "{start}");
        }
        assert_eq!(Request::decode(b"req_reset:\r\n"), Some(Request::Reset { client: None }));
    }

    #[test]
    fn other_commands_are_not_decoded() {
        for invalid in [
            "",
            "req",
            "req:1.2.3.4",
            "req:1.2.3.4:123456789:f()",
            "req:1.2.3.4::f()",
            "req:1.2.3.4:xyz:f()",
            "req_reset",
            "req_start_ftpd",
            "req_set_clu_ip:0d0a1b2c:10.0.0.1",
            "req_set_clu_ip:0d0a1b2c:10.0.0.256:10.0.0.1",
            "req_set_clu_ip::10.0.0.1:10.0.0.1",
            "req_refresh_modules",
            "resp:OK",
        ] {
            assert_eq!(Request::decode(invalid.as_bytes()), None, "{invalid}");
        }
        assert_eq!(Reply::decode(b"resp:OKAY"), None);
        assert_eq!(Reply::decode(b"req::1:f()"), None);
    }

    /// Separators and line ends in binary fields are parts of them.
    #[test]
    fn binary_fields_may_contain_any_byte() {
        let (challenge, iv, key) = ([b':'; 32], *b":::\r\n  \r\n:::::\r\n", *b"\r\n::::::::::::\r\n");
        let set_key = Request::SetKey { challenge: &challenge, iv: &iv, key: SecretKey(&key) };
        let mut command = encoded(|out| set_key.encode(out));
        assert_eq!(command.len(), 78);
        assert_eq!(Request::decode(&command), Some(set_key));

        command.extend_from_slice(b"\r\n");
        assert_eq!(Request::decode(&command), Some(set_key));
        assert_eq!(Request::decode(&command[..77]), None);
        assert!(!format!("{set_key:?}").contains("13, 10, 58, 58, 58, 58, 58, 58, 58, 58, 58, 58, 58, 58, 13, 10"));

        let discover = Request::Discover { challenge: &challenge, iv: &iv, client: Some([10, 72, 144, 72].into()) };
        assert_eq!(Request::decode(&encoded(|out| discover.encode(out))), Some(discover));
        let mac = MacAddress([0x80, 1, 2, 3, 4, 0xff]);
        let discovered = Reply::Discovered { proof: &challenge, iv: &iv, serial: Serial(0x0d0a1b2c), mac };
        let command = encoded(|out| discovered.encode(out));
        assert_eq!((command.len(), Reply::decode(&command)), (90, Some(discovered)));
        assert!(command.ends_with(b":resp_discovery_clu:0d0a1b2c:8001020304ff"));
    }

    #[test]
    fn decoders_accept_any_bytes_and_what_they_decode_is_encoded_to_the_same() {
        let mut random = fastrand::Rng::with_seed(3);
        let keywords: Vec<&str> = Request::KEYWORDS.iter().chain(Reply::KEYWORDS).copied().collect();
        let mut n_decoded = 0;
        for _ in 0..50_000 {
            let mut command = Vec::new();
            if random.bool() {
                command.extend(std::iter::repeat_with(|| random.u8(..)).take(49));
                command[32] = b':';
                command.push(b':');
            }
            command.extend_from_slice(random.choice(&keywords).map_or(&b""[..], |keyword| keyword.as_bytes()));
            for _ in 0..random.usize(0..5) {
                let part: &[u8] = match random.u8(0..7) {
                    0 => b":",
                    1 => b":10.0.0.1",
                    2 => b":0d0a1b2c",
                    3 => b":0123456789ab",
                    4 => b"\r\n",
                    5 => b":0123456789abcdef",
                    _ => &[random.u8(..), random.u8(..)],
                };
                command.extend_from_slice(part);
            }
            if let Some(request) = Request::decode(&command) {
                n_decoded += 1;
                let again = encoded(|out| request.encode(out));
                assert_eq!(Request::decode(&again), Some(request), "{command:?}");
            }
            if let Some(reply) = Reply::decode(&command) {
                n_decoded += 1;
                let again = encoded(|out| reply.encode(out));
                assert_eq!(Reply::decode(&again), Some(reply), "{command:?}");
            }
        }
        assert!(n_decoded > 5000, "{n_decoded}");
    }

    #[test]
    fn numbers_are_hexadecimal_and_have_a_limit() {
        assert_eq!(hexadecimal(b"0x0D0a", 8), Some(0xd0a));
        assert_eq!(hexadecimal(b"ffffffffffffffff", 16), Some(u64::MAX));
        for invalid in ["", "0x", "123456789", "12g", "-1", " 1"] {
            assert_eq!(hexadecimal(invalid.as_bytes(), 8), None, "{invalid}");
        }
        assert_eq!(Serial::parse(" 0D0A1B2C\n").map(|serial| serial.to_string()), Some("0d0a1b2c".to_string()));
    }
}
