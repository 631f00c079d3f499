//! The MCP and HTTP doors of tollgate.
