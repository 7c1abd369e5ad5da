//! How a client says who it is.

use std::sync::{Arc, OnceLock};

use fodo_data::{Kind, Structure, StructureBuilder, StructureType, Text};

use crate::cursor::{ByteReader, ByteWriter};
use crate::types::{TypeCache, TypeIds};
use crate::value;

/// What a client sends with its choice of a method.
#[derive(Clone, Debug, PartialEq)]
pub enum Credentials {
    /// The method `anonymous`: nothing.
    Anonymous,
    /// The method `ca`: names that the server believes, the same as in Channel Access.
    Ca {
        /// The account.
        user: Text,
        /// The host. Phoebus resolves it and never replies if that fails: send a name that resolves, or an address.
        host: Text,
    },
    /// Any other method, such as `x509`, whose identity comes from a certificate.
    Other {
        /// The name of the method.
        method: Text,
        /// Its value, if it needs one.
        value: Option<Structure>,
    },
}

/// The name of the method without an identity.
pub const ANONYMOUS: &str = "anonymous";
/// The name of the method with account and host.
pub const CA: &str = "ca";
/// The name of the method whose identity is in the certificate of the circuit, which uses TLS.
pub const X509: &str = "x509";

impl Credentials {
    /// The name of the method.
    pub fn method(&self) -> Text {
        match self {
            Credentials::Anonymous => ANONYMOUS.into(),
            Credentials::Ca { .. } => CA.into(),
            Credentials::Other { method, .. } => method.clone(),
        }
    }

    /// Appends what follows the method's name in CONNECTION_VALIDATION.
    pub fn encode(&self, ids: Option<&mut TypeIds>, to: &mut ByteWriter) {
        match self {
            Credentials::Anonymous => value::encode_any(None, ids, to),
            Credentials::Ca { user, host } => {
                let mut structure = Structure::new(identity_type().clone());
                for (bit, text) in [(1, user), (2, host)] {
                    let is_set =
                        structure.set_value(bit, fodo_data::Value::Scalar(fodo_data::Scalar::Text(text.clone())));
                    debug_assert_eq!(is_set, Ok(()));
                }
                value::encode_any(Some(&structure), ids, to);
            }
            Credentials::Other { value, .. } => value::encode_any(value.as_ref(), ids, to),
        }
    }

    /// Decodes what follows the method's name. Names that are missing are empty.
    pub fn decode(method: &Text, reader: &mut ByteReader, cache: &mut TypeCache) -> Credentials {
        // Some clients send nothing at all instead of null.
        let value = if reader.n_left() == 0 { None } else { value::decode_any(reader, cache) };
        match method.as_bytes() {
            b"anonymous" => Credentials::Anonymous,
            b"ca" => {
                let text = |name| {
                    let first = value.as_ref().and_then(|value| value.get(name)).and_then(fodo_data::Value::first);
                    first.map_or(Text::EMPTY, |first| first.to_text(None))
                };
                Credentials::Ca { user: text("user"), host: text("host") }
            }
            _ => Credentials::Other { method: method.clone(), value },
        }
    }
}

/// The type of the value of the method `ca`.
fn identity_type() -> &'static Arc<StructureType> {
    static TYPE: OnceLock<Arc<StructureType>> = OnceLock::new();
    TYPE.get_or_init(|| {
        let mut build = StructureBuilder::new("");
        build.scalar("user", Kind::Text).scalar("host", Kind::Text);
        Arc::new(build.finish())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cursor::ByteOrder;

    #[test]
    fn credentials_round_trip_with_and_without_type_ids() {
        let certificate = Credentials::Other { method: "x509".into(), value: None };
        let operator = Credentials::Ca { user: "operator".into(), host: "desk".into() };
        for sent in [Credentials::Anonymous, operator, certificate] {
            let (mut ids, mut cache) = (TypeIds::new(10), TypeCache::new());
            for _ in 0..2 {
                let mut bytes = Vec::new();
                sent.encode(Some(&mut ids), &mut ByteWriter::new(&mut bytes, ByteOrder::Little));

                let mut reader = ByteReader::new(&bytes, ByteOrder::Little);
                assert_eq!(Credentials::decode(&sent.method(), &mut reader, &mut cache), sent);
                assert_eq!(reader.finish(), Ok(()));
            }
        }
        let mut nothing = ByteReader::new(b"", ByteOrder::Little);
        let unnamed = Credentials::decode(&"ca".into(), &mut nothing, &mut TypeCache::new());
        assert_eq!(unnamed, Credentials::Ca { user: Text::EMPTY, host: Text::EMPTY });
    }
}
