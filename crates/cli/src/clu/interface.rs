//! Interfaces of this host, by name or address.

use std::net::Ipv4Addr;

use if_addrs::IfAddr;

/// The loopback network's broadcast address; on Linux it reaches the sockets of this host.
const LOOPBACK_BROADCAST: Ipv4Addr = Ipv4Addr::new(127, 255, 255, 255);

/// An interface with IPv4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedInterface {
    /// For example `eth0`.
    pub name: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// Its broadcast address, if it has one.
    pub broadcast: Option<Ipv4Addr>,
}

/// The interface with this name or address. The error lists those of this host.
pub fn interface_named(word: &str) -> Result<NamedInterface, String> {
    let all = if_addrs::get_if_addrs().map_err(|error| format!("the interfaces of this host: {error}"))?;
    let all = all.into_iter().filter_map(|interface| match interface.addr {
        IfAddr::V4(v4) => {
            let broadcast = if v4.ip.is_loopback() { Some(LOOPBACK_BROADCAST) } else { v4.broadcast };
            Some(NamedInterface { name: interface.name, address: v4.ip, broadcast })
        }
        IfAddr::V6(_) => None,
    });
    select(word, &all.collect::<Vec<_>>())
}

fn select(word: &str, all: &[NamedInterface]) -> Result<NamedInterface, String> {
    let address: Option<Ipv4Addr> = word.parse().ok();
    let found = all.iter().find(|known| known.name == word || Some(known.address) == address);
    found.cloned().ok_or_else(|| {
        let names: Vec<String> = all.iter().map(|known| format!("{} ({})", known.name, known.address)).collect();
        format!("there is no interface \"{word}\" with IPv4; this host has {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_found_by_name_and_by_address_and_an_unknown_one_lists_all() {
        let lo =
            NamedInterface { name: "lo".into(), address: Ipv4Addr::LOCALHOST, broadcast: Some(LOOPBACK_BROADCAST) };
        let eth = NamedInterface { name: "eth0".into(), address: Ipv4Addr::new(10, 0, 0, 7), broadcast: None };
        let all = [lo, eth.clone()];

        assert_eq!(select("eth0", &all), Ok(eth.clone()));
        assert_eq!(select("10.0.0.7", &all), Ok(eth));
        assert_eq!(
            select("wlan0", &all),
            Err("there is no interface \"wlan0\" with IPv4; this host has lo (127.0.0.1), eth0 (10.0.0.7)".to_owned())
        );
    }
}
