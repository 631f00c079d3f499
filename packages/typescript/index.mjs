// The same classes for `import`: there is one copy of them, however the package is loaded.
import tollgate from './index.js';

export const {
  Workspace, Turn, Read, Vault, Claim, TollgateError, Refused, StaleFile, FileBusy, UnreadFile, UnreadableFile,
  OutsideWorkspace, ProtectedPath, NotAFile, HardLinked, ReadOnly, TextNotFound, Fenced, OtherTree, PremiseChanged, Denied, NothingToClaim, NotOwner,
  Fault, NotFound, AgentTools, explain,
} = tollgate;
