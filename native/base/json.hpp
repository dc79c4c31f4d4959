// The one piece of JSON that several writers need.
#pragma once

#include <string>
#include <string_view>

namespace oocdnn {

// `text` as a JSON string, with its quotes.
std::string JsonString(std::string_view text);

}  // namespace oocdnn
