//! Status codes of Channel Access (`ECA_*`).

use std::fmt;

/// A status code: a number with the severity in its lowest three bits. Unknown codes are kept and printed as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Eca(pub u32);

macro_rules! codes {
    ($($name:ident $message:literal $severity:literal $text:literal;)*) => {
        impl Eca {
            $(#[doc = $text] pub const $name: Eca = Eca($message << 3 | $severity);)*

            /// Every known code with its name and text.
            pub const ALL: &'static [(Eca, &'static str, &'static str)] =
                &[$((Eca::$name, concat!("ECA_", stringify!($name)), $text)),*];
        }
    };
}

// Severity: 0 warning, 1 success, 2 error, 3 information, 4 severe, 6 fatal.
codes! {
    NORMAL 0 1 "normal successful completion";
    MAXIOC 1 2 "maximum simultaneous IOC connections exceeded";
    UKNHOST 2 2 "unknown internet host";
    UKNSERV 3 2 "unknown internet service";
    SOCK 4 2 "unable to allocate a new socket";
    CONN 5 0 "unable to connect to internet host or service";
    ALLOCMEM 6 0 "unable to allocate additional dynamic memory";
    UKNCHAN 7 0 "unknown IO channel";
    UKNFIELD 8 0 "record field specified inappropriate for channel specified";
    TOLARGE 9 0 "the requested transfer is greater than available memory or EPICS_CA_MAX_ARRAY_BYTES";
    TIMEOUT 10 0 "user specified timeout on IO operation expired";
    NOSUPPORT 11 0 "sorry, that feature is planned but not supported at this time";
    STRTOBIG 12 0 "the supplied string is unusually large";
    DISCONNCHID 13 2 "the request was ignored because the specified channel is disconnected";
    BADTYPE 14 2 "the data type specified is invalid";
    CHIDNOTFND 15 3 "remote channel not found";
    CHIDRETRY 16 3 "unable to locate all user specified channels";
    INTERNAL 17 6 "channel access internal failure";
    DBLCLFAIL 18 0 "the requested local DB operation failed";
    GETFAIL 19 0 "channel read request failed";
    PUTFAIL 20 0 "channel write request failed";
    ADDFAIL 21 0 "channel subscription request failed";
    BADCOUNT 22 0 "invalid element count requested";
    BADSTR 23 2 "invalid string";
    DISCONN 24 0 "virtual circuit disconnect";
    DBLCHNL 25 0 "identical process variable names on multiple servers";
    EVDISALLOW 26 2 "request inappropriate within subscription (monitor) update callback";
    BUILDGET 27 0 "database value get for that channel failed during channel search";
    NEEDSFP 28 0 "unable to initialize without the vxWorks VX_FP_TASK task option set";
    OVEVFAIL 29 0 "event queue overflow has prevented first pass event after event add";
    BADMONID 30 2 "bad event subscription (monitor) identifier";
    NEWADDR 31 0 "remote channel has new network address";
    NEWCONN 32 3 "new or resumed network connection";
    NOCACTX 33 0 "specified task isn't a member of a CA context";
    DEFUNCT 34 6 "attempt to use defunct CA feature failed";
    EMPTYSTR 35 0 "the supplied string is empty";
    NOREPEATER 36 0 "unable to spawn the CA repeater thread, auto reconnect will fail";
    NOCHANMSG 37 0 "no channel id match for search reply, search reply ignored";
    DLCKREST 38 0 "resetting dead connection, will try to reconnect";
    SERVBEHIND 39 0 "server (IOC) has fallen behind or is not responding, still waiting";
    NOCAST 40 0 "no internet interface with broadcast available";
    BADMASK 41 2 "invalid event selection mask";
    IODONE 42 3 "IO operations have completed";
    IOINPROGRESS 43 3 "IO operations are in progress";
    BADSYNCGRP 44 2 "invalid synchronous group identifier";
    PUTCBINPROG 45 2 "put callback timed out";
    NORDACCESS 46 0 "read access denied";
    NOWTACCESS 47 0 "write access denied";
    ANACHRONISM 48 2 "requested feature is no longer supported";
    NOSEARCHADDR 49 0 "empty PV search address list";
    NOCONVERT 50 0 "no reasonable data conversion between client and server types";
    BADCHID 51 2 "invalid channel identifier";
    BADFUNCPTR 52 2 "invalid function pointer";
    ISATTACHED 53 0 "thread is already attached to a client context";
    UNAVAILINSERV 54 0 "not supported by attached service";
    CHANDESTROY 55 0 "user destroyed channel";
    BADPRIORITY 56 2 "invalid channel priority";
    NOTTHREADED 57 2 "preemptive callback not enabled, additional threads may not join context";
    ARRAY16KCLIENT 58 0 "client's protocol revision does not support transfers exceeding 16k bytes";
    CONNSEQTMO 59 0 "virtual circuit connection sequence aborted";
    UNRESPTMO 60 0 "virtual circuit unresponsive";
}

impl Eca {
    /// Whether the code means success.
    pub const fn is_success(self) -> bool {
        self.0 & 1 != 0
    }

    /// The name of the code, as in EPICS programs.
    pub fn name(self) -> Option<&'static str> {
        Eca::ALL.iter().find(|row| row.0 == self).map(|row| row.1)
    }
}

impl From<u32> for Eca {
    fn from(number: u32) -> Eca {
        Eca(number)
    }
}

impl From<Eca> for u32 {
    fn from(status: Eca) -> u32 {
        status.0
    }
}

impl fmt::Display for Eca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Eca::ALL.iter().find(|row| row.0 == *self) {
            Some((_, name, text)) => write!(f, "{text} ({name})"),
            None => write!(f, "status {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_codes_have_their_epics_numbers() {
        assert_eq!(Eca::NORMAL.0, 1);
        assert_eq!(Eca::GETFAIL.0, 152);
        assert_eq!(Eca::PUTFAIL.0, 160);
        assert_eq!(Eca::NOWTACCESS.0, 376);
        assert_eq!(Eca::INTERNAL.0, 142);
        assert_eq!(Eca(7777).to_string(), "status 7777");
    }

    #[test]
    fn a_status_code_has_a_name_a_text_and_a_severity() {
        assert_eq!((Eca::BADTYPE.name(), Eca(7777).name()), (Some("ECA_BADTYPE"), None));
        assert_eq!(Eca::GETFAIL.to_string(), "channel read request failed (ECA_GETFAIL)");
        assert_eq!((Eca::from(1), u32::from(Eca::IODONE)), (Eca::NORMAL, 42 << 3 | 3));
        // As in libca, an information is a success, because its lowest bit is set.
        let successes: Vec<Eca> = Eca::ALL.iter().map(|row| row.0).filter(|code| code.is_success()).collect();
        assert!(successes.contains(&Eca::NORMAL) && successes.contains(&Eca::NEWCONN));
        assert!(successes.iter().all(|code| [1, 3].contains(&(code.0 & 7))), "{successes:?}");
    }
}
