//! Certificates for tests: authorities, and keychains in PEM that they issue.

use fodo_net::Keychain;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

/// An authority that issues certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

fn named(name: &str) -> CertificateParams {
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.use_authority_key_identifier_extension = true;
    parameters
}

fn of_authority(name: &str) -> CertificateParams {
    let mut parameters = named(name);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    parameters
}

impl Authority {
    /// A root.
    pub fn new(name: &str) -> Authority {
        let (parameters, key) = (of_authority(name), KeyPair::generate().unwrap());
        let pem = parameters.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(parameters, key), pem }
    }

    /// An authority below this one.
    pub fn below(&self, name: &str) -> Authority {
        let (parameters, key) = (of_authority(name), KeyPair::generate().unwrap());
        let own = parameters.signed_by(&key, &self.issuer).unwrap().pem();
        Authority { issuer: Issuer::new(parameters, key), pem: format!("{own}{}", self.pem) }
    }

    /// The keychain of a program with this name.
    pub fn keychain(&self, name: &str) -> Keychain {
        parsed(&self.pem_of(name, |_| {}))
    }

    /// The same, with a certificate that has expired.
    pub fn expired(&self, name: &str) -> Keychain {
        parsed(&self.pem_of(name, |parameters| {
            parameters.not_before = date_time_ymd(2020, 1, 1);
            parameters.not_after = date_time_ymd(2021, 1, 1);
        }))
    }

    /// The same, with a certificate that permits only this usage.
    pub fn only_for(&self, name: &str, usage: ExtendedKeyUsagePurpose) -> Keychain {
        parsed(&self.pem_of(name, |parameters| parameters.extended_key_usages = vec![usage]))
    }

    /// A keychain of a program whose authority was renewed with another key. It contains the certificates of both, the
    /// renewed one first.
    pub fn keychain_with(&self, renewed: &Authority, name: &str) -> Keychain {
        parsed(&format!("{}{}", renewed.pem, self.pem_of(name, |_| {})))
    }

    /// The certificates of the authorities.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A keychain without a private key.
    pub fn trust(&self) -> Keychain {
        parsed(&self.pem)
    }

    /// The PEM text of a keychain.
    pub fn pem_of(&self, name: &str, adjust: impl FnOnce(&mut CertificateParams)) -> String {
        let mut parameters = named(name);
        adjust(&mut parameters);
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        format!("{}{}{}", certificate.pem(), key.serialize_pem(), self.pem)
    }
}

pub fn parsed(pem: &str) -> Keychain {
    Keychain::parse("test.pem", pem.as_bytes(), "").unwrap()
}

/// Two keychains with the same self-signed certificate, one of them without the key.
pub fn self_signed(name: &str) -> (Keychain, String) {
    let key = KeyPair::generate().unwrap();
    let certificate = named(name).self_signed(&key).unwrap().pem();
    (parsed(&format!("{certificate}{}", key.serialize_pem())), certificate)
}
