//! The variables of TLS: keychains with their passwords, and options.

use std::fs::File;
use std::io::Read as _;

use super::environment::Variables;
use super::variable::{ValueFormat, Variable};
use super::{ConfigError, variable};
use crate::limit;
use crate::tls::{ClientCertificates, Keychain, TlsPolicy};

/// Options of other implementations that have no meaning here: there is no certificate status service.
const UNUSED: [&str; 5] = ["on_expiration", "on_no_cms", "no_revocation_check", "no_stapling", "disable_status_check"];

/// The text of a variable, as it may be shown.
pub(super) fn without_password(format: ValueFormat, text: &str) -> &str {
    match (format, text.split_once(';')) {
        (ValueFormat::File, Some((file, _password))) => file,
        _ => text,
    }
}

/// A remark on options that are not used.
pub(super) fn unused_options(text: &str) -> Option<String> {
    let unused: Vec<&str> = options(text).filter(|(name, _)| UNUSED.contains(name)).map(|(name, _)| name).collect();
    (!unused.is_empty()).then(|| format!("not used: {}", unused.join(", ")))
}

/// Names of options with their values; empty for an option without a value.
fn options(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split([' ', ','])
        .filter(|option| !option.is_empty())
        .map(|option| option.split_once('=').unwrap_or((option, "")))
}

impl Variables<'_> {
    pub(super) fn tls_of_client(&self) -> Result<TlsPolicy, ConfigError> {
        self.policy(&variable::PVA_TLS_KEYCHAIN, &variable::PVA_TLS_KEYCHAIN_PWD_FILE)
    }

    pub(super) fn tls_of_server(&self) -> Result<TlsPolicy, ConfigError> {
        self.policy(&variable::PVAS_TLS_KEYCHAIN, &variable::PVAS_TLS_KEYCHAIN_PWD_FILE)
    }

    fn policy(&self, keychain: &'static Variable, password: &'static Variable) -> Result<TlsPolicy, ConfigError> {
        let is_only = self.is_yes(&variable::PVA_TLS_ONLY)?;
        match (self.keychain(keychain, password)?, is_only) {
            (Some(keychain), true) => Ok(TlsPolicy::Only(keychain)),
            (Some(keychain), false) => Ok(TlsPolicy::Preferred(keychain)),
            (None, false) => Ok(TlsPolicy::Off),
            (None, true) => {
                let reason = "FODO_PVA_TLS_ONLY is YES, so a keychain is needed".into();
                Err(ConfigError { reason, ..self.found(keychain).wrong(keychain.format) })
            }
        }
    }

    fn keychain(
        &self,
        keychain: &'static Variable,
        password: &'static Variable,
    ) -> Result<Option<Keychain>, ConfigError> {
        let found = self.found(keychain);
        if found.text.is_empty() {
            return Ok(None);
        }
        let (file, after) = found.text.split_once(';').unwrap_or((&found.text, ""));
        let in_file = self.found(password);
        let from_file = match in_file.text.is_empty() {
            true => None,
            false => Some(first_line(&in_file.text).map_err(|error| {
                let reason = format!("it cannot be read: {error}");
                ConfigError { reason, ..in_file.wrong(password.format) }
            })?),
        };
        let password = from_file.as_deref().unwrap_or(after);
        match Keychain::load(file, password) {
            Ok(keychain) => Ok(Some(keychain)),
            Err(error) => Err(ConfigError { reason: error.reason, ..found.wrong(keychain.format) }),
        }
    }

    /// Checks the file that a variable of TLS names.
    pub(super) fn check_file(&self, variable: &'static Variable) -> Result<(), ConfigError> {
        let checked = if variable == &variable::PVA_TLS_KEYCHAIN || variable == &variable::PVA_TLS_KEYCHAIN_PWD_FILE {
            self.keychain(&variable::PVA_TLS_KEYCHAIN, &variable::PVA_TLS_KEYCHAIN_PWD_FILE)
        } else {
            self.keychain(&variable::PVAS_TLS_KEYCHAIN, &variable::PVAS_TLS_KEYCHAIN_PWD_FILE)
        };
        match checked {
            Err(error) if error.variable == variable.name => Err(error),
            _ => Ok(()),
        }
    }

    pub(super) fn client_certificates(&self, variable: &'static Variable) -> Result<ClientCertificates, ConfigError> {
        let found = self.found(variable);
        let mut certificates = ClientCertificates::Optional;
        for option in options(&found.text) {
            match option {
                ("client_cert", "optional") => certificates = ClientCertificates::Optional,
                ("client_cert", "require" | "required") => certificates = ClientCertificates::Required,
                (name, _) if UNUSED.contains(&name) => {}
                _ => return Err(found.wrong(variable.format)),
            }
        }
        Ok(certificates)
    }
}

/// The first line of a file, without its end.
fn first_line(file: &str) -> std::io::Result<String> {
    let mut text = String::new();
    File::open(file)?.take(limit::KEYCHAIN_BYTES).read_to_string(&mut text)?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ClientConfig, Host, ServerConfig};

    fn table<'a>(rows: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| rows.iter().find(|row| row.0 == name).map(|row| row.1.to_owned())
    }

    #[test]
    fn a_password_is_in_no_error_and_no_setting() {
        let rows = [("EPICS_PVA_TLS_KEYCHAIN", "/nowhere/client.p12;secret")];

        let error = ClientConfig::from_variables(&table(&rows)).unwrap_err();
        let settings = Variables { lookup: &table(&rows) }.settings();

        assert!(error.to_string().starts_with("EPICS_PVA_TLS_KEYCHAIN=\"/nowhere/client.p12\": "), "{error}");
        assert!(error.to_string().contains("cannot be read"), "{error}");
        let shown = format!("{error} {error:?} {settings:?}");
        assert!(!shown.contains("secret") && shown.contains("/nowhere/client.p12"), "{shown}");
    }

    #[test]
    fn tls_as_the_only_transport_requires_a_keychain_on_both_sides() {
        let rows = [("FODO_PVA_TLS_ONLY", "YES")];

        let client = ClientConfig::from_variables(&table(&rows)).unwrap_err();
        let server = ServerConfig::from_variables(&table(&rows)).unwrap_err();

        assert_eq!((client.variable, server.variable), ("EPICS_PVA_TLS_KEYCHAIN", "EPICS_PVAS_TLS_KEYCHAIN"));
        assert!(client.to_string().contains("FODO_PVA_TLS_ONLY is YES"), "{client}");
    }

    /// A file with a certificate, which is removed with it.
    struct KeychainFile(String);

    impl KeychainFile {
        fn new(test: &str) -> KeychainFile {
            let file = std::env::temp_dir().join(format!("fodo-{test}-{}.pem", std::process::id()));
            let key = rcgen::KeyPair::generate().unwrap();
            let certificate = rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap();
            std::fs::write(&file, certificate.pem()).unwrap();
            KeychainFile(file.to_str().unwrap().to_owned())
        }
    }

    impl Drop for KeychainFile {
        fn drop(&mut self) {
            // What is left is in the folder of temporary files.
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn the_scheme_of_a_name_server_selects_its_transport_and_its_default_port() {
        let keychain = KeychainFile::new("schemes");
        let list = "10.0.0.1 pva://names:7000 pvas://10.0.0.1 pvas://[::1]:7076/ pvas://10.0.0.1:8076";
        let rows = [
            ("EPICS_PVA_TLS_KEYCHAIN", keychain.0.as_str()),
            ("EPICS_PVA_NAME_SERVERS", list),
            ("EPICS_PVA_TLS_PORT", "8076"),
        ];

        let config = ClientConfig::from_variables(&table(&rows)).unwrap().pva;

        let host = |name: &str, port| Host { name: name.into(), port };
        assert_eq!(config.name_servers, [host("10.0.0.1", 5075), host("names", 7000)]);
        assert_eq!(config.tls_name_servers, [host("10.0.0.1", 8076), host("::1", 7076)]);
    }

    #[test]
    fn a_name_server_that_the_client_may_not_use_is_an_error_that_names_the_entry() {
        let keychain = KeychainFile::new("refused");
        let error = |list: &str, more: &[(&str, &str)]| {
            let rows = [&[("EPICS_PVA_NAME_SERVERS", list)][..], more].concat();
            ClientConfig::from_variables(&table(&rows)).unwrap_err()
        };

        let plain = error("a pva://b:1", &[("EPICS_PVA_TLS_KEYCHAIN", &keychain.0), ("FODO_PVA_TLS_ONLY", "YES")]);
        let without_keychain = error("a pvas://b:1", &[]);
        let scheme = error("a tls://b:1", &[]);
        let port = error("a pva://b:many", &[]);

        assert_eq!((plain.text.as_str(), plain.variable), ("a", "EPICS_PVA_NAME_SERVERS"));
        assert!(plain.reason.contains("FODO_PVA_TLS_ONLY is YES") && plain.reason.contains("pvas://"), "{plain}");
        assert_eq!(without_keychain.text, "pvas://b:1");
        assert!(without_keychain.reason.contains("EPICS_PVA_TLS_KEYCHAIN"), "{without_keychain}");
        assert_eq!((scheme.text.as_str(), port.text.as_str()), ("tls://b:1", "pva://b:many"));
        assert!(scheme.to_string().ends_with("after pvas:// for TLS"), "{scheme}");
    }

    #[test]
    fn options_of_a_certificate_status_service_are_accepted_and_reported_as_not_used() {
        let of = |text: &str| {
            let rows = [("EPICS_PVA_TLS_OPTIONS", text)];
            Variables { lookup: &table(&rows) }.client_certificates(&variable::PVAS_TLS_OPTIONS)
        };

        assert_eq!(of(""), Ok(ClientCertificates::Optional));
        assert_eq!(of("on_no_cms=throw client_cert=require"), Ok(ClientCertificates::Required));
        assert_eq!(of("client_cert=no").unwrap_err().variable, "EPICS_PVA_TLS_OPTIONS");
        assert_eq!(unused_options("on_no_cms=throw no_stapling"), Some("not used: on_no_cms, no_stapling".into()));
        assert_eq!(unused_options("client_cert=require"), None);
    }
}
