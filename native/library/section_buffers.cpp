#include "library/section_buffers.hpp"

#include <new>
#include <utility>

#include "base/config.hpp"

namespace oocdnn {

bool SectionBuffers::Have(const Bytes& bytes) const {
  if (buffers_.size() < bytes.size()) return false;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (buffers_[i].bytes < bytes[i]) return false;
  }
  return true;
}

Status SectionBuffers::Reserve(const Bytes& bytes, Slabs* slabs) {
  while (buffers_.size() < bytes.size()) buffers_.emplace_back();
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (buffers_[i].bytes < bytes[i]) OOC_TRY(Grow(&buffers_[i], bytes[i], slabs));
  }
  return {};
}

void SectionBuffers::Release(Slabs* slabs) {
  buffers_.clear();
  slabs->Limit(cap_);
}

Status SectionBuffers::Grow(Buffer* buffer, int64_t bytes, Slabs* slabs) {
  *buffer = {};
  if (bytes <= cap_ / 2 - PinnedBytes()) {
    slabs->Limit(cap_ - PinnedBytes() - bytes);
    Result<std::unique_ptr<HostMemory>> pinned = HostMemory::Allocate(device_, bytes);
    if (pinned.ok()) buffer->pinned = std::move(pinned).value();
  }
  if (buffer->pinned == nullptr) {
    buffer->plain.reset(new (std::nothrow) char[static_cast<size_t>(bytes)]);
  }
  const bool made = buffer->data() != nullptr;
  buffer->bytes = made ? bytes : 0;
  slabs->Limit(cap_ - PinnedBytes());
  if (made) return {};
  return Error(Code::kOutOfMemory, "no host memory for the %s between two sections of a chain",
               BytesText(bytes).c_str());
}

int64_t SectionBuffers::PinnedBytes() const {
  int64_t bytes = 0;
  for (const Buffer& buffer : buffers_) {
    if (buffer.pinned != nullptr) bytes += buffer.bytes;
  }
  return bytes;
}

}  // namespace oocdnn
