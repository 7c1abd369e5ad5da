//! The expressions of Lua that a client sends.

use std::net::Ipv4Addr;

use fodo_data::Scalar;

use crate::limit;
use crate::value::{write_expression, write_lua_text};

/// One value of a CLU: a feature of an object, or a variable of the user.
///
/// ```
/// use fodo_clu::script::CluItem;
///
/// assert!(CluItem::feature("DOU8306", 0).is_some());
/// assert!(CluItem::feature("os.exit()", 0).is_none());
/// assert!(CluItem::variable("setpoint").is_some());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CluItem {
    name: Box<str>,
    /// `None` for a variable.
    feature: Option<u32>,
}

impl CluItem {
    /// A feature of an object, by its index; `None` if `object` is not a name in Lua.
    pub fn feature(object: &str, index: u32) -> Option<CluItem> {
        is_identifier(object).then(|| CluItem { name: object.into(), feature: Some(index) })
    }

    /// A variable of the user; `None` if `name` is not a name in Lua.
    pub fn variable(name: &str) -> Option<CluItem> {
        is_identifier(name).then(|| CluItem { name: name.into(), feature: None })
    }

    /// The name of the object or of the variable.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The index of the feature; `None` for a variable.
    pub fn index(&self) -> Option<u32> {
        self.feature
    }

    /// The greatest length of the item in a list.
    pub(crate) fn listed_bytes_max(&self) -> usize {
        self.name.len() + "{,4294967295},".len()
    }

    /// Appends the item as an element of the lists of `clientRegister` and `fetchValues`.
    fn write_listed(&self, out: &mut Vec<u8>) {
        match self.feature {
            Some(index) => write_text(out, format_args!("{{{},{index}}}", self.name)),
            None => write_lua_text(self.name.as_bytes(), out),
        }
    }

    /// Appends the expression that returns the value.
    pub fn write_get(&self, out: &mut Vec<u8>) {
        match self.feature {
            Some(index) => write_text(out, format_args!("{}:get({index})", self.name)),
            None => write_text(out, format_args!("getVar(\"{}\")", self.name)),
        }
    }

    /// Appends the expression that changes the value.
    pub fn write_set(&self, value: &Scalar, out: &mut Vec<u8>) {
        match self.feature {
            Some(index) => write_text(out, format_args!("{}:set({index},", self.name)),
            None => write_text(out, format_args!("setVar(\"{}\",", self.name)),
        }
        write_expression(value, out);
        out.push(b')');
    }
}

/// Appends the expression that calls a method; `None` if `object` is not a name in Lua.
pub fn write_call(object: &str, method: u32, arguments: &[Scalar], out: &mut Vec<u8>) -> Option<()> {
    if !is_identifier(object) {
        return None;
    }
    write_text(out, format_args!("{object}:execute({method}"));
    for argument in arguments {
        out.push(b',');
        write_expression(argument, out);
    }
    out.push(b')');
    Some(())
}

/// Appends the expression that returns the values of all items.
pub fn write_fetch(items: &[CluItem], out: &mut Vec<u8>) {
    out.extend_from_slice(b"SYSTEM:fetchValues(");
    write_items(items, out);
    out.push(b')');
}

/// Where a CLU sends the updates of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportTarget {
    /// To this address and port; all CLUs accept it.
    Address(Ipv4Addr, u16),
    /// To the sender of the request, also through an address translation. OpenGr8ton's virtual CLU does not answer it.
    Sender,
}

/// Appends the expression that subscribes to items, and again later, so that the subscription does not expire.
pub fn write_register(target: ReportTarget, client_id: u32, items: &[CluItem], out: &mut Vec<u8>) {
    out.extend_from_slice(b"SYSTEM:clientRegister(");
    write_target(target, client_id, out);
    out.push(b',');
    write_items(items, out);
    out.push(b')');
}

/// Appends the expression that ends a subscription.
pub fn write_destroy(target: ReportTarget, client_id: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(b"SYSTEM:clientDestroy(");
    write_target(target, client_id, out);
    out.push(b')');
}

fn write_target(target: ReportTarget, client_id: u32, out: &mut Vec<u8>) {
    match target {
        ReportTarget::Address(address, port) => write_text(out, format_args!("\"{address}\",{port},{client_id}")),
        ReportTarget::Sender => write_text(out, format_args!("0,{client_id},1")),
    }
}

fn write_items(items: &[CluItem], out: &mut Vec<u8>) {
    out.push(b'{');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        item.write_listed(out);
    }
    out.push(b'}');
}

pub(crate) fn write_text(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    let written = std::io::Write::write_fmt(out, text);
    debug_assert!(written.is_ok(), "memory can always be written");
}

/// Whether a text is a name in Lua of acceptable length.
pub(crate) fn is_identifier(text: &str) -> bool {
    let starts_as_name = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    starts_as_name && text.len() <= limit::NAME_BYTES_MAX && text.bytes().all(is_name_byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_registration_has_the_form_that_object_manager_sends() {
        let items = [CluItem::feature("PAN9821", 1).unwrap(), CluItem::variable("Temp").unwrap()];
        let target = ReportTarget::Address(Ipv4Addr::new(10, 72, 144, 72), 4344);

        let expected = "SYSTEM:clientRegister(\"10.72.144.72\",4344,3903,{{PAN9821,1},\"Temp\"})";
        assert_eq!(written(|out| write_register(target, 3903, &items, out)), expected);
        let expected = "SYSTEM:clientDestroy(\"10.72.144.72\",4344,3903)";
        assert_eq!(written(|out| write_destroy(target, 3903, out)), expected);
        let expected = "SYSTEM:clientRegister(0,7,1,{{PAN9821,1}})";
        assert_eq!(written(|out| write_register(ReportTarget::Sender, 7, &items[..1], out)), expected);
    }

    #[test]
    fn features_variables_and_methods_have_their_expressions() {
        let (feature, variable) = (CluItem::feature("DIM1", 0).unwrap(), CluItem::variable("t").unwrap());

        assert_eq!(written(|out| feature.write_get(out)), "DIM1:get(0)");
        assert_eq!(written(|out| variable.write_get(out)), "getVar(\"t\")");
        assert_eq!(written(|out| feature.write_set(&Scalar::F64(0.5), out)), "DIM1:set(0,0.5)");
        assert_eq!(
            written(|out| variable.write_set(&Scalar::Text("a\"b\n".into()), out)),
            "setVar(\"t\",\"a\\\"b\\010\")"
        );
        let arguments = [Scalar::F64(50.0), Scalar::Bool(true)];
        let call = written(|out| write_call("ROL1", 10, &arguments, out).expect("a valid name"));
        assert_eq!(call, "ROL1:execute(10,50,true)");
        assert_eq!(write_call("a b", 0, &[], &mut Vec::new()), None);
    }

    #[test]
    fn a_listed_item_is_not_longer_than_its_greatest_length() {
        for item in [CluItem::feature("ROL1", u32::MAX), CluItem::variable("ROL1")].into_iter().flatten() {
            assert!(written(|out| item.write_listed(out)).len() < item.listed_bytes_max());
        }
    }
}
