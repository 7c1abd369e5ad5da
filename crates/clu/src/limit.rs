//! Every bound of this crate, with its reason.

use std::time::Duration;

/// Maximum size of an encrypted datagram that a CLU accepts: the receive buffer of Grenton's programs. A longer one is
/// truncated there and cannot be decrypted.
pub const DATAGRAM_BYTES_MAX: usize = 2048;

/// Maximum size of a command before encryption; with its padding it has [`DATAGRAM_BYTES_MAX`] bytes.
pub const COMMAND_BYTES_MAX: usize = DATAGRAM_BYTES_MAX - crate::cipher::BLOCK_BYTES;

/// Size of the receive buffer of a client: the largest UDP datagram, because OpenGr8ton's virtual CLU sends replies of
/// any size.
pub const REPLY_BYTES_MAX: usize = 64 * 1024;

/// Maximum length of the name of an object or a variable; Object Manager generates names of about 12 characters.
pub const NAME_BYTES_MAX: usize = 128;

/// Maximum number of requests of a client that wait or are in flight, for each CLU. A real CLU answers at most some
/// hundred in the time in which requests time out.
pub const REQUESTS_MAX: usize = 4096;

/// How many requests a client sends before a reply, unless it is configured. Clients of real CLUs reach their limit here.
pub const IN_FLIGHT_DEFAULT: usize = 4;

/// Maximum for the number of requests before a reply: a socket buffer of 208 KiB has space for as many short commands.
pub const IN_FLIGHT_MAX: usize = 256;

/// How long a request waits for its reply, with the time before it was sent, unless it is configured; the same as in
/// other clients of real CLUs.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum for the timeout of a request: longer than any script of a CLU runs.
pub const REQUEST_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

/// The time after which a request is sent again, if that is safe; then twice that time. A busy CLU answers in less.
pub const RESEND_AFTER: Duration = Duration::from_secs(1);

/// How many ended requests a client remembers, to count their late and repeated replies.
pub const ENDED_REQUESTS: usize = 1024;

/// Period of checkAlive, the same as in other clients of real CLUs.
pub const CHECK_ALIVE_PERIOD: Duration = Duration::from_secs(5);

/// How long a CLU may take to answer checkAlive. With [`CHECK_ALIVE_MISSES`], a CLU that stops after a reply is
/// unavailable within 10 s.
pub const CHECK_ALIVE_TIMEOUT: Duration = Duration::from_secs(2);

/// How many times in succession checkAlive must fail until a CLU is unavailable.
pub const CHECK_ALIVE_MISSES: u32 = 2;

/// Maximum number of items of one registration. Other clients of real CLUs use it, whose memory for Lua is 612 KiB.
pub const PAGE_ITEMS_MAX: usize = 16;

/// Maximum size of a registration before encryption, so that the buffers of all CLUs have space for it.
pub const PAGE_BYTES_MAX: usize = 1800;

/// Size of a registration without its items: keyword, two addresses, session, port and client id.
pub const REGISTRATION_BYTES: usize = 96;

/// Maximum number of registrations of one client: 65520 items. Even if each item needs a registration of its own, there are
/// client ids of 16 bits for them.
pub const PAGES_MAX: usize = 4095;

/// How long after a registration it is renewed. CLUs forget a registration after 60 s.
pub const RENEW_AFTER: Duration = Duration::from_secs(45);

/// How long after the last report a registration is renewed. CLUs report at least every 10 s, so that a longer silence
/// indicates that the CLU has started again and forgot the registration.
pub const REPORT_SILENCE: Duration = Duration::from_secs(15);

/// How many registrations of a page a CLU may refuse before the client looks for an item that is the cause: a busy CLU
/// refuses any request.
pub const REFUSED_REGISTRATIONS: u32 = 3;

/// How long after a failed registration it is tried again.
pub const REGISTER_RETRY: Duration = Duration::from_secs(5);

/// When a discovery sends its request again: datagrams are lost, and a CLU may be busy.
pub const DISCOVERY_RESENDS: [Duration; 2] = [Duration::from_millis(500), Duration::from_millis(1500)];

/// Maximum number of CLUs that a discovery finds: more than a project has.
pub const DISCOVERED_MAX: usize = 1024;

/// Maximum number of objects and variables in OM.LUA: 40 times the maximum of a CLU.
pub const OM_LUA_OBJECTS_MAX: usize = 16 * 1024;

/// Maximum size of an interface file; that of a CLU has some ten kilobytes.
pub const INTERFACE_BYTES_MAX: usize = 1024 * 1024;

/// Maximum number of elements and texts in an interface file.
pub const INTERFACE_NODES_MAX: u32 = 64 * 1024;

/// Maximum size of `keys.json`, which has about 150 bytes.
pub const KEY_FILE_BYTES_MAX: usize = 4096;

/// Maximum size of a project of Object Manager; projects of houses have some hundred kilobytes.
pub const PROJECT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Maximum size of `properties.xml` and `system.xml` in a project after decompression, against archives that expand
/// without end.
pub const PROJECT_XML_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Maximum number of elements and texts in an XML file of a project.
pub const PROJECT_XML_NODES_MAX: u32 = 2 * 1024 * 1024;

/// Maximum number of CLUs in a project.
pub const PROJECT_CLUS_MAX: usize = 1024;

/// Maximum number of objects in a project: 40 times the maximum of a CLU, as for OM.LUA.
pub const PROJECT_OBJECTS_MAX: usize = OM_LUA_OBJECTS_MAX;

/// Maximum number of features and events of an object in a project; the CLU has the most, about 40.
pub const OBJECT_FEATURES_MAX: usize = 256;

/// Maximum number of features and events in a project: 16 of each object, which have about 10. References make a short file
/// describe very many.
pub const PROJECT_FEATURES_MAX: usize = 16 * PROJECT_OBJECTS_MAX;

/// The minimum time between two reports of a subscription, unless it is configured; the same as in OpenGr8ton's virtual
/// CLU.
pub const REPORT_INTERVAL_DEFAULT: Duration = Duration::from_secs(1);

/// Minimum for the time between two reports. A shorter one would send more datagrams than a client of a real CLU expects.
pub const REPORT_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Maximum for the time between two reports, the same as of real CLUs.
pub const REPORT_INTERVAL_MAX: Duration = Duration::from_secs(10);

/// The time after which unchanged values are reported again, so that a lost report is replaced. Clients regard a longer
/// silence than [`REPORT_SILENCE`] as a restart of the CLU.
pub const REPORT_REPEAT: Duration = Duration::from_secs(10);

/// How long a subscription lasts without renewal. Clients renew it after 45 to 60 s.
pub const SUBSCRIPTION_TIME: Duration = Duration::from_secs(60);

/// Maximum number of subscriptions of a CLU: the pages of two clients with [`SUBSCRIPTIONS_OF_ADDRESS_MAX`] each.
pub const SUBSCRIPTIONS_MAX: usize = 8192;

/// Maximum number of subscriptions whose reports are sent to one address: the greatest number of pages of a client.
pub const SUBSCRIPTIONS_OF_ADDRESS_MAX: usize = 4096;

/// Maximum number of values in one subscription. A report of as many values fills a datagram even if each has 7 digits.
pub const SUBSCRIPTION_ITEMS_MAX: usize = 256;

/// Maximum number of values in all subscriptions: [`SUBSCRIPTIONS_MAX`] with 16 values, as clients use them.
pub const SUBSCRIBED_ITEMS_MAX: usize = 128 * 1024;

/// How long the values of a subscription may take until they are requested again. It is longer than the calls that
/// occupy Lua.
pub const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// The minimum time between two looks at all subscriptions because of changed values. With 1000 subscriptions of 16
/// values, each look reads at most 16000 values.
pub const CHANGE_SPACING: Duration = Duration::from_millis(250);

/// How long a temporary key is valid: the time in which a person adds a CLU to a project.
pub const TEMPORARY_KEY_TIME: Duration = Duration::from_secs(300);

/// How many datagrams a server accepts from one address in a second, unless it is configured. 64 clients on one computer
/// reach about half of it; the limit stops recorded datagrams that are sent at the speed of the network.
pub const REQUESTS_PER_S_DEFAULT: u32 = 250_000;

/// How many datagrams that the key of the project does not decrypt a server accepts from one address in a second, unless
/// it is configured. A client with a temporary key sends about 10.
pub const STRANGERS_PER_S_DEFAULT: u32 = 50;

/// How many seconds of datagrams an address may send at once.
pub const FLOOD_BURST: Duration = Duration::from_secs(1);

/// Maximum number of addresses with their own flood limit, about 400 KiB; all others share one.
pub const FLOOD_SOURCES_MAX: usize = 4096;

/// Maximum size of a file that is read or written with TFTP, unless it is configured: 16 times a large script.
pub const TFTP_FILE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Maximum length of the name of a file; the files of CLUs have at most 24 characters.
pub const TFTP_PATH_BYTES_MAX: usize = 128;

/// Maximum number of folders in the name of a file, with the file; the files of CLUs have no folders.
pub const TFTP_PATH_PARTS_MAX: usize = 4;

/// Maximum number of transfers of a server at the same time. Clients transfer one file after another.
pub const TFTP_TRANSFERS_MAX: usize = 4;

/// Maximum number of addresses that may begin a transfer at the same time.
pub const TFTP_UNLOCKED_MAX: usize = 8;

/// How long an address may wait with its first transfer, unless it is configured: as long as a client tries three times to
/// start the TFTP server and to send its request.
pub const TFTP_UNLOCKED_TIME: Duration = Duration::from_secs(60);

/// How long after a transfer the same address may begin another one, unless it is configured. A client begins it at once,
/// or after it has sent its request again.
pub const TFTP_NEXT_TRANSFER_TIME: Duration = Duration::from_secs(10);

/// The time after which a packet of TFTP without reply is sent again; the same as in Grenton's programs.
pub const TFTP_RETRANSMIT_AFTER: Duration = Duration::from_secs(5);

/// How many times a packet of TFTP is sent until the transfer has failed; the same as in Grenton's programs.
pub const TFTP_TRIES: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cipher::{BLOCK_BYTES, CipherKey};

    /// The padding adds 1 to 16 bytes.
    #[test]
    fn the_longest_command_fills_the_largest_datagram() {
        let mut datagram = Vec::new();
        CipherKey::broadcast().encrypt(&[b' '; COMMAND_BYTES_MAX], &mut datagram);

        assert_eq!(datagram.len(), DATAGRAM_BYTES_MAX);
        assert_eq!(DATAGRAM_BYTES_MAX % BLOCK_BYTES, 0);
    }

    #[test]
    fn a_clu_that_stops_is_unavailable_within_10_seconds() {
        assert!(CHECK_ALIVE_PERIOD + CHECK_ALIVE_TIMEOUT * CHECK_ALIVE_MISSES < Duration::from_secs(10));
    }

    #[test]
    fn limits_have_space_for_what_their_reasons_name() {
        for (what, limit, least) in [
            ("a page in a command", COMMAND_BYTES_MAX, PAGE_BYTES_MAX),
            ("the longest item in a page", PAGE_BYTES_MAX, REGISTRATION_BYTES + NAME_BYTES_MAX + 16),
            ("usual names in a full page", PAGE_BYTES_MAX, REGISTRATION_BYTES + PAGE_ITEMS_MAX * 24),
            ("ended requests of a full queue that timed out", 4 * ENDED_REQUESTS, REQUESTS_MAX),
            ("the objects of a CLU", OM_LUA_OBJECTS_MAX, 400),
            ("the registrations in the queue of requests", REQUESTS_MAX, PAGES_MAX),
            ("a registration for each item", usize::from(u16::MAX), PAGES_MAX * PAGE_ITEMS_MAX),
        ] {
            assert!(limit >= least, "{limit} is too small for {what}, {least}");
        }
        assert!(RENEW_AFTER < Duration::from_secs(60));
    }
}
