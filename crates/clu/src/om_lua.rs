//! The objects in OM.LUA, the file that Object Manager writes for a CLU.
//!
//! Comments contain the names that people gave the objects: `-- NAME_IO Kitchen_Light=DOU8306`. The constructors contain
//! the class of each object: `DOU8306 = OBJECT:new(4, MOD330005854, 0, "DOU8306")`. A user variable has its type in a
//! comment: `setpoint = 21 -- number`.

use crate::limit;

/// The contents of OM.LUA.
///
/// ```
/// use fodo_clu::om_lua::OmLua;
///
/// let file = OmLua::parse("DOU8306 = OBJECT:new(4, MOD1, 0, \"DOU8306\")\n-- NAME_IO Kitchen_Light=DOU8306\n");
/// let light = &file.objects[0];
/// assert_eq!((light.id.as_str(), light.name.as_deref(), light.class), ("DOU8306", Some("Kitchen_Light"), Some(4)));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OmLua {
    /// The objects in the order of the file.
    pub objects: Vec<OmObject>,
    /// The user variables in the order of the file.
    pub variables: Vec<UserVariable>,
    /// How many objects and variables were left out because the file has more than [`limit::OM_LUA_OBJECTS_MAX`].
    pub n_left_out: usize,
}

/// An object of a CLU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OmObject {
    /// The name of the object in Lua, for example `DOU8306`.
    pub id: String,
    /// The name that a person chose.
    pub name: Option<String>,
    /// The number of the class; `None` if the file has only the name.
    pub class: Option<u32>,
}

/// A variable that a person defined in Object Manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserVariable {
    /// The name in Lua.
    pub name: String,
    /// The type of its value.
    pub kind: VariableKind,
}

/// The type of a user variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableKind {
    /// A number.
    Number,
    /// A text.
    Text,
    /// A boolean.
    Boolean,
}

impl OmLua {
    /// Parses the file. Lines that define neither an object nor a variable are ignored.
    pub fn parse(text: &str) -> OmLua {
        let mut file = OmLua::default();
        let mut index_by_id = std::collections::HashMap::new();
        for line in text.lines().map(str::trim) {
            if let Some((id, class)) = constructor(line) {
                if let Some(object) = file.object(id, &mut index_by_id) {
                    object.class = Some(class);
                }
            } else if let Some((name, id)) = name_comment(line) {
                if let Some(object) = file.object(id, &mut index_by_id) {
                    object.name = Some(name.to_string());
                }
            } else if let Some(variable) = user_variable(line) {
                if file.has_space() {
                    file.variables.push(variable);
                } else {
                    file.n_left_out += 1;
                }
            }
        }
        file
    }

    fn has_space(&self) -> bool {
        self.objects.len() + self.variables.len() < limit::OM_LUA_OBJECTS_MAX
    }

    /// The object with this id, which is added if it is new; `None` if there are too many.
    fn object(
        &mut self,
        id: &str,
        index_by_id: &mut std::collections::HashMap<String, usize>,
    ) -> Option<&mut OmObject> {
        if let Some(index) = index_by_id.get(id) {
            return self.objects.get_mut(*index);
        }
        if !self.has_space() {
            self.n_left_out += 1;
            return None;
        }
        index_by_id.insert(id.to_string(), self.objects.len());
        self.objects.push(OmObject { id: id.to_string(), name: None, class: None });
        self.objects.last_mut()
    }
}

/// The id and the class in a line such as `DOU1 = OBJECT:new(4, ...)`.
fn constructor(line: &str) -> Option<(&str, u32)> {
    let (id, value) = line.split_once('=')?;
    let value = value.trim_start();
    let arguments = value.strip_prefix("OBJECT:new(").or_else(|| value.strip_prefix("GATE:new("))?;
    let class = arguments.split([',', ')']).next()?.trim().parse().ok()?;
    identifier(id.trim()).map(|id| (id, class))
}

/// The name and the id in a line such as `-- NAME_IO Kitchen_Light=DOU1`.
fn name_comment(line: &str) -> Option<(&str, &str)> {
    let comment = line.strip_prefix("--")?.trim_start();
    let kinds = ["NAME_CLU ", "NAME_PERIPHERY ", "NAME_IO "];
    let names = kinds.iter().find_map(|kind| comment.strip_prefix(kind))?;
    let (name, id) = names.rsplit_once('=')?;
    let name = name.trim();
    identifier(id.trim()).filter(|_| !name.is_empty()).map(|id| (name, id))
}

fn user_variable(line: &str) -> Option<UserVariable> {
    let (definition, comment) = line.rsplit_once("--")?;
    let (name, _) = definition.split_once('=')?;
    let kind = match comment.split_whitespace().next()? {
        "number" => VariableKind::Number,
        "string" => VariableKind::Text,
        "boolean" => VariableKind::Boolean,
        _ => return None,
    };
    identifier(name.trim()).map(|name| UserVariable { name: name.to_string(), kind })
}

/// The text if it is a name in Lua of acceptable length.
fn identifier(text: &str) -> Option<&str> {
    crate::script::is_identifier(text).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_all_constructors_have_their_class_and_their_name() {
        let file = OmLua::parse(
            "-- FwType 00000003\r\n\
             STO99999 = OBJECT:new(44, \"STO99999\")\r\n\
             CLU22 = OBJECT:new(0, 0xA489002, \"CLU22\")\r\n\
             -- NAME_CLU House=CLU22\r\n\
             DIN1=OBJECT:new(3, MOD1, 0, \"DIN1\")\r\n\
             -- NAME_IO Door = left=DIN1\r\n\
             GAT1 = GATE:new(5000, ip, mask)\r\n\
             -- NAME_PERIPHERY Morning=TIM1\r\n\
             setpoint = 21.5 -- number\r\n\
             greeting = \"hi -- you\" -- string\r\n\
             CLU22:set(18, 0)\r\n\
             local x = 4\r\n",
        );

        let object = |id: &str, name: Option<&str>, class| OmObject {
            id: id.to_string(),
            name: name.map(str::to_string),
            class,
        };
        let expected = [
            object("STO99999", None, Some(44)),
            object("CLU22", Some("House"), Some(0)),
            object("DIN1", Some("Door = left"), Some(3)),
            object("GAT1", None, Some(5000)),
            object("TIM1", Some("Morning"), None),
        ];
        assert_eq!(file.objects, expected);
        let kinds: Vec<_> = file.variables.iter().map(|variable| (variable.name.as_str(), variable.kind)).collect();
        assert_eq!(kinds, [("setpoint", VariableKind::Number), ("greeting", VariableKind::Text)]);
        assert_eq!(file.n_left_out, 0);
    }

    #[test]
    fn objects_beyond_the_limit_are_counted() {
        let text: String =
            (0..limit::OM_LUA_OBJECTS_MAX + 3).map(|n| format!("D{n} = OBJECT:new(4, \"D\")\n")).collect();

        let file = OmLua::parse(&text);

        assert_eq!((file.objects.len(), file.n_left_out), (limit::OM_LUA_OBJECTS_MAX, 3));
    }

    #[test]
    fn names_that_are_not_names_in_lua_are_ignored() {
        let file = OmLua::parse("a.b = OBJECT:new(4, 1)\n-- NAME_IO =D1\n-- NAME_IO x=1 2\n = OBJECT:new(4)\n");

        assert_eq!(file, OmLua::default());
    }
}
