//! Which addresses may be connected to: those of the public internet, and of networks that the settings name.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// A network, such as `10.0.0.0/8`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Network(IpNet);

/// A text that is no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no network: it is written 10.0.0.0/8, fd00::/8 or 127.0.0.1")]
pub struct NetworkError(String);

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let one = |_| text.parse::<IpAddr>().map(IpNet::from);
        text.parse::<IpNet>().or_else(one).map(Self).map_err(|_| NetworkError(text.to_owned()))
    }
}

impl TryFrom<String> for Network {
    type Error = NetworkError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        network.to_string()
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where clouds give their machines' credentials away. Some of them lie in networks that somebody may well allow, one of them
/// in the public internet.
const METADATA: [IpAddr; 8] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 23)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

/// Whether an address may be connected to.
pub(super) fn permits(networks: &[Network], address: IpAddr) -> bool {
    let address = meant(address);
    if METADATA.contains(&address) {
        return networks
            .iter()
            .any(|Network(net)| net.prefix_len() == net.max_prefix_len() && meant(net.addr()) == address);
    }
    let itself = is_public(address) || networks.iter().any(|Network(net)| net.contains(&address));
    itself && carried(address).is_none_or(|inner| permits(networks, inner.into()))
}

/// The IPv4 address that whoever has this route sends to, behind one that is allowed or refused by itself as well: IPv4-compatible
/// addresses, 6to4 (RFC 3056), and translators of one's own (RFC 8215, in the forms of RFC 6052 for /48 and /96).
fn carried(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(six) = address else { return None };
    let of = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    let [a, b, c] = [six.octets()[9], six.octets()[10], six.octets()[8]];
    match six.segments() {
        // Neither is an IPv4 address: nobody's, and this machine.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        [0x64, 0xff9b, 1, high, _, last, 0, 0] if c == 0 && last.trailing_zeros() >= 8 => {
            Some(of(high, u16::from_be_bytes([a, b])))
        }
        [0, 0, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] | [0x64, 0xff9b, 1, .., high, low] => {
            Some(of(high, low))
        }
        _ => None,
    }
}

/// The address behind one that only wraps it, for everybody: IPv4 in IPv6, and IPv4 behind the well-known translator.
fn meant(address: IpAddr) -> IpAddr {
    let IpAddr::V6(six) = address else { return address };
    if let Some(four) = six.to_ipv4_mapped() {
        return IpAddr::V4(four);
    }
    match six.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            IpAddr::V4(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)))
        }
        _ => address,
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => is_public_v4(four),
        IpAddr::V6(six) => is_public_v6(six),
    }
}

/// By the registry of special purpose addresses of IANA.
fn is_public_v4(address: Ipv4Addr) -> bool {
    !matches!(
        address.octets(),
        [0 | 10 | 127 | 224.., ..]
            | [100, 64..=127, ..]
            | [169, 254, ..]
            | [172, 16..=31, ..]
            | [192, 168, ..]
            | [192, 0, 0 | 2, _]
            | [192, 88, 99, _]
            | [198, 18 | 19, ..]
            | [198, 51, 100, _]
            | [203, 0, 113, _]
    )
}

/// Only what is given out as global unicast, less what has a special purpose in it: `2001::/23` with Teredo, documentation, and
/// 6to4, which wraps IPv4 addresses.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    let global = first & 0xe000 == 0x2000;
    let special = match first {
        0x2001 => second < 0x200 || second == 0xdb8,
        0x2002 => true,
        0x3fff => second < 0x1000,
        _ => false,
    };
    global && !special
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(networks: &[&str], address: &str) -> bool {
        let networks: Vec<Network> = networks.iter().map(|text| text.parse().unwrap()).collect();
        permits(&networks, address.parse().unwrap())
    }

    #[test]
    fn l03_only_public_addresses_are_connected_to() {
        for public in ["1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "64:ff9b::101:101"] {
            assert!(allowed(&[], public), "{public}");
        }
        let refused = [
            "0.0.0.0",
            "10.1.2.3",
            "127.0.0.1",
            "127.255.0.1",
            "100.64.0.1",
            "169.254.1.1",
            "169.254.169.254",
            "168.63.129.16",
            "172.16.0.1",
            "192.168.1.1",
            "192.0.2.1",
            "198.18.0.1",
            "203.0.113.9",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:101:101::",
            "3fff::1",
            "169.254.170.2",
            "169.254.170.23",
            "fd00:ec2::23",
            "::1.1.1.1",
            "::10.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::101:101",
        ];
        for address in refused {
            assert!(!allowed(&[], address), "{address}");
        }
    }

    #[test]
    fn l03_networks_allow_what_they_name_and_metadata_only_by_itself() {
        assert!(allowed(&["10.0.0.0/8"], "10.1.2.3"));
        assert!(allowed(&["127.0.0.1"], "::ffff:127.0.0.1"));
        assert!(!allowed(&["10.0.0.0/8"], "192.168.0.1"));
        assert!(allowed(&["169.254.0.0/16"], "169.254.1.1"));
        assert!(!allowed(&["169.254.0.0/16", "0.0.0.0/0"], "169.254.169.254"));
        assert!(!allowed(&["fd00::/8"], "fd00:ec2::254"));
        assert!(allowed(&["169.254.169.254/32"], "169.254.169.254"));
        for metadata in ["169.254.170.23", "fd00:ec2::23"] {
            assert!(!allowed(&["169.254.0.0/16", "fd00::/8"], metadata), "{metadata}");
            assert!(allowed(&[metadata], metadata), "{metadata}");
        }
        assert!("10.0.0.0/33".parse::<Network>().is_err() && "x".parse::<Network>().is_err());
    }

    #[test]
    fn l03_an_address_that_carries_another_is_held_to_both() {
        let cases: &[(&[&str], &str, bool)] = &[
            (&["2002::/16"], "2002:101:101::", true),
            (&["2002::/16"], "2002:a00:1::", false),
            (&["2002::/16", "10.0.0.0/8"], "2002:a00:1::", true),
            (&["2002::/16", "169.254.0.0/16"], "2002:a9fe:a9fe::1", false),
            (&["2002::/16", "169.254.169.254"], "2002:a9fe:a9fe::1", true),
            (&["10.0.0.0/8"], "2002:a00:1::", false),
            (&["::/0"], "::1.1.1.1", true),
            (&["::/0"], "::127.0.0.1", false),
            (&["::/0"], "::169.254.169.254", false),
            (&["::/0"], "::1", true),
            (&["::/0"], "64:ff9b::a9fe:a9fe", false),
            (&["::/0"], "64:ff9b::a00:1", false),
            (&["10.0.0.0/8"], "64:ff9b::a00:1", true),
            // As RFC 6052 has it for a prefix of 96 bits, then for one of 48.
            (&["64:ff9b:1::/48"], "64:ff9b:1::101:101", true),
            (&["64:ff9b:1::/48"], "64:ff9b:1::a9fe:a9fe", false),
            (&["64:ff9b:1::/48"], "64:ff9b:1:101:1:100::", true),
            (&["64:ff9b:1::/48"], "64:ff9b:1:a9fe:a9:fe00::", false),
            (&["64:ff9b:1::/48"], "64:ff9b:1:a00:0:100::", false),
        ];
        for &(networks, address, expected) in cases {
            assert_eq!(allowed(networks, address), expected, "{networks:?} {address}");
        }
    }
}
