//! The choices of menu fields, in the order of their numbers.

macro_rules! menus {
    ($($name:ident [$($choice:literal),* $(,)?];)*) => {
        $(pub(crate) const $name: &[&str] = &[$($choice),*];)*
    };
}

menus! {
    ACALCOUT_SIZE ["NELM", "NUSE"];
    ASUB_EFLG ["NEVER", "ON CHANGE", "ALWAYS"];
    ASUB_LFLG ["IGNORE", "READ"];
    AO_OIF ["Full", "Incremental"];
    OOPT [
        "Every Time", "On Change", "When Zero", "When Non-zero", "Transition To Zero", "Transition To Non-zero",
    ];
    ALARM_SEVR ["NO_ALARM", "MINOR", "MAJOR", "INVALID"];
    CALCOUT_DOPT ["Use CALC", "Use OCAL"];
    CALCOUT_INAV ["Ext PV NC", "Ext PV OK", "Local PV", "Constant"];
    BUFFER_ALG ["FIFO Buffer", "LIFO Buffer"];
    COMPRESS_ALG [
        "N to 1 Low Value", "N to 1 High Value", "N to 1 Average", "Average", "Circular Buffer", "N to 1 Median",
    ];
    CONVERT [
        "NO CONVERSION", "SLOPE", "LINEAR", "typeKdegF", "typeKdegC", "typeJdegF", "typeJdegC", "typeEdegF(ixe only)",
        "typeEdegC(ixe only)", "typeTdegF", "typeTdegC", "typeRdegF", "typeRdegC", "typeSdegF", "typeSdegC",
    ];
    FTYPE [
        "STRING", "CHAR", "UCHAR", "SHORT", "USHORT", "LONG", "ULONG", "INT64", "UINT64", "FLOAT", "DOUBLE", "ENUM",
    ];
    HISTOGRAM_CMD ["Read", "Clear", "Start", "Stop"];
    IVOA ["Continue normally", "Don't drive outputs", "Set output to IVOV"];
    OMSL ["supervisory", "closed_loop"];
    PINI ["NO", "YES", "RUN", "RUNNING", "PAUSE", "PAUSED"];
    PRIORITY ["LOW", "MEDIUM", "HIGH"];
    SCAN [
        "Passive", "Event", "I/O Intr", "10 second", "5 second", "2 second", "1 second", ".5 second", ".2 second",
        ".1 second",
    ];
    SCALCOUT_WAIT ["NoWait", "Wait"];
    SEL_SELM ["Specified", "High Signal", "Low Signal", "Median Signal"];
    SELM ["All", "Specified", "Mask"];
    SIMM ["NO", "YES", "RAW"];
    SWAIT_DOPT ["Use VAL", "Use DOL"];
    SWAIT_INAP ["No", "Yes"];
    SWAIT_INAV ["PV OK", "PV BAD", "No PV"];
    SYNAPPS_OOPT [
        "Every Time", "On Change", "When Zero", "When Non-zero", "Transition To Zero", "Transition To Non-zero", "Never",
    ];
    TRANSFORM_COPT ["Conditional", "Always"];
    TRANSFORM_IVLA ["Ignore error", "Do Nothing"];
    YES_NO ["NO", "YES"];
    POST ["On Change", "Always"];
    SSEQ_WAIT [
        "NoWait", "Wait", "After1", "After2", "After3", "After4", "After5", "After6", "After7", "After8", "After9",
        "After10",
    ];
    STRING_POST ["On Change", "Always"];
    ARRAY_POST ["Always", "On Change"];
}

/// The alarm statuses.
pub(crate) const ALARM_STAT: &[&str] = fodo_data::Status::NAMES;

/// Severities: the choices of `ALARM_SEVR`.
pub(crate) const NO_ALARM: u16 = 0;
pub(crate) const MINOR: u16 = 1;
pub(crate) const MAJOR: u16 = 2;
pub(crate) const INVALID: u16 = 3;

/// Choices of `YES_NO` and of `SIMM`.
pub(crate) const NO: u16 = 0;
pub(crate) const YES: u16 = 1;
pub(crate) const RAW: u16 = 2;

/// A choice of `OMSL`: the value is read through DOL.
pub(crate) const CLOSED_LOOP: u16 = 1;
/// A choice of `POST` and `STRING_POST`.
pub(crate) const ALWAYS: u16 = 1;
/// A choice of `CALCOUT_DOPT`: the result of OCAL is written.
pub(crate) const USE_OCAL: u16 = 1;
/// Choices of `CONVERT`; those that follow are names of breakpoint tables.
pub(crate) const NO_CONVERSION: u16 = 0;
pub(crate) const SLOPE: u16 = 1;
pub(crate) const LINEAR: u16 = 2;
/// Choices of `SCAN`. A site's own `menuScan` begins with the same three.
pub(crate) const PASSIVE: u16 = 0;
pub(crate) const EVENT: u16 = 1;
pub(crate) const IO_INTERRUPT: u16 = 2;
/// The value of SSCN that is no choice of `SCAN`: simulation mode does not change SCAN.
pub(crate) const NO_SCAN: u16 = u16::MAX;

/// The choices of `PINI` that process a record when the IOC starts: YES, RUN and RUNNING, in the order of processing.
pub(crate) const PINI_AT_START: [u16; 3] = [1, 2, PINI_RUNNING];
/// The choice of `PINI` that processes a record when the scans have started.
pub(crate) const PINI_RUNNING: u16 = 3;
