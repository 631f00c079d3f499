// What tollgate throws: a refusal of the guard, a denial of the vault, or a fault. Each carries its payload.
'use strict';

class TollgateError extends Error {
  constructor(failure) {
    super(failure.message);
    this.name = new.target.name;
    this.payload = failure.payload;
  }
}

class Refused extends TollgateError {
  constructor(failure) {
    super(failure);
    this.payloads = failure.payloads;
    this.reports = failure.reports;
  }

  get report() {
    return this.reports[0];
  }
}

class StaleFile extends Refused {}
class FileBusy extends Refused {}
class UnreadFile extends Refused {}
class UnreadableFile extends Refused {}
class OutsideWorkspace extends Refused {}
class ProtectedPath extends Refused {}
class NotAFile extends Refused {}
class HardLinked extends Refused {}
class ReadOnly extends Refused {}
class TextNotFound extends Refused {}
class Fenced extends Refused {}
class OtherTree extends Refused {}
class PremiseChanged extends Refused {}

class Denied extends TollgateError {
  get reason() {
    return this.payload.reason;
  }
}
class NothingToClaim extends Denied {}
class NotOwner extends Denied {}

class Fault extends TollgateError {
  get code() {
    return this.payload.error;
  }

  get hint() {
    return this.payload.hint;
  }
}
class NotFound extends Fault {}

const REFUSALS = {
  STALE_FILE: StaleFile,
  FILE_BUSY: FileBusy,
  UNREAD_FILE: UnreadFile,
  UNREADABLE_FILE: UnreadableFile,
  OUTSIDE_WORKSPACE: OutsideWorkspace,
  PROTECTED_PATH: ProtectedPath,
  NOT_A_FILE: NotAFile,
  HARD_LINKED: HardLinked,
  READ_ONLY: ReadOnly,
  TEXT_NOT_FOUND: TextNotFound,
  FENCED: Fenced,
  OTHER_TREE: OtherTree,
  PREMISE_CHANGED: PremiseChanged,
};

function kind({ kind, payload }) {
  switch (kind) {
    case 'refused':
      return REFUSALS[payload.error_type] ?? Refused;
    case 'denied':
      if (payload.reason === 'not_owner') return NotOwner;
      return payload.task === null ? NothingToClaim : Denied;
    default:
      return payload.error === 'NOT_FOUND' ? NotFound : Fault;
  }
}

/** The error for what the native module has thrown: its message is JSON, unless an argument was wrong. */
function errorOf(thrown) {
  let failure;
  try {
    failure = JSON.parse(thrown.message);
  } catch {
    return thrown;
  }
  return new (kind(failure))(failure);
}

module.exports = {
  TollgateError, Refused, StaleFile, FileBusy, UnreadFile, UnreadableFile, OutsideWorkspace, ProtectedPath, NotAFile,
  HardLinked, ReadOnly, TextNotFound, Fenced, OtherTree, PremiseChanged, Denied, NothingToClaim, NotOwner, Fault, NotFound, errorOf,
};
